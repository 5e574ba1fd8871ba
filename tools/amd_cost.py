#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the AMD kernels cost, by the instructions that they execute: the stand-in for a timing.

    tools/amd_cost.py BUILD [--arch gfx90a,gfx942] [--op forward,jvp,backward,backward-jvp,dbias]
                      [--dtype f16,bf16] [--head-dim 64,128,256] [--listing] [--json FILE]

Each kernel runs twice in the simulator of BUILD (tests/amdgcn-sim), on problems that differ by a
known number of scores; the difference in executed instructions is what those scores cost, set-up
and results left out. The rates below turn it into cycles of a compute unit for a block of 32 x 32
scores, which is the same whatever the tiles are, so that variants of the tuning table compare:
environment variables, PFATTN_TUNING among them, reach the command unchanged. docs/amd-cost.md says
how to read the table. --listing adds the instructions that touch memory or LDS.
"""
import argparse
import json
import math
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

# Cycles and bytes of one compute unit, and the documents that they are from:
# - flops: matrix operations a cycle. AMD matrix instruction calculator (GPUOpen), "FLOPs/CU/cycle": 1024 for
#   f16 and bf16_1k on CDNA2, 2048 on CDNA3, 256 for f32 on both.
# - units, clock (GHz), lds (bytes): "GPU hardware specifications" of the ROCm documentation and the data sheets of MI210
#   (which is one die of an MI250) and MI300X.
# - l2: bytes a cycle of L2, all channels, for the units that share it. ROCm Compute Profiler, "L2 cache": 32
#   channels a die of MI200. Assumed: 128 bytes a channel, and 16 channels for the 38 units of an XCD of MI300.
CHIPS = {
    "gfx90a": {"flops": {"f16": 1024, "bf16": 1024, "f32": 256}, "units": 104, "clock": 1.7, "lds": 65536,
               "l2": 32 * 128 / 104},
    "gfx942": {"flops": {"f16": 2048, "bf16": 2048, "f32": 256}, "units": 304, "clock": 2.1, "lds": 65536,
               "l2": 16 * 128 / 38},
}
# The same for both: "Introduction to AMD GPU Programming with HIP" and ROCm Compute Profiler, "Pipeline
# descriptions": four SIMDs of 16 lanes, each of which issues for one wave every four cycles; 512 registers a lane,
# given out in eights; at most eight waves. A packed f32 instruction takes as long as a plain one ("AMD matrix
# cores", AMD lab notes). Slow instructions take four times as long: transcendental functions (LLVM's SISchedule.td) and,
# as we assume, conversions between f32 and other types and 32-bit multiplications.
SIMDS, ISSUE, REGISTERS, WAVES = 4, 4, 512, 8
SLOW = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_f(16|32)|v_cvt_(f32_|[fiu]\d+_f32)|v_mul_(lo|hi)_|v_mad_[iu]64_")
MATRIX = re.compile(r"v_mfma_f32_(\d+)x(\d+)x(\d+)_?(f16|bf16|f32)")
# Vector memory takes the addresses of 16 lanes a cycle.
ADDRESS_CYCLES = 4

KERNELS = {"forward": "pf_forward", "jvp": "pf_forward_jvp", "backward": "pf_backward",
           "backward-jvp": "pf_backward_jvp", "dbias": "pf_dbias"}
# Operations as docs/mathematics.md counts them, in units of D + E a score. backward-jvp: twice the five products of
# backward, and dbias two products of its own.
FLOPS = {"forward": 2, "jvp": 6, "backward": 5, "backward-jvp": 15, "dbias": 2}


def matrix_cycles(chip, mnemonic):
    """Cycles that an MFMA instruction keeps the matrix unit of its SIMD busy."""
    m, n, k, element = MATRIX.match(mnemonic).groups()
    return 2 * int(m) * int(n) * int(k) * SIMDS // CHIPS[chip]["flops"][element]


def read_profile(path):
    """(kernel, workgroups, threads, lds, registers, {offset: (text, counts)}) of each launch."""
    launches = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        fields = line.split("\t")
        if fields[0] == "kernel":
            launches.append((fields[1], *map(int, fields[2:]), {}))
        else:
            launches[-1][-1][int(fields[0], 16)] = (fields[6], [int(f) for f in fields[1:6]])
    return launches


def write_npy(path, shape, seed):
    """Standard normal values as f4."""
    rng = random.Random(seed)
    block = [rng.gauss(0, 1) for _ in range(4099)]
    count = math.prod(shape)
    values = (block * (count // len(block) + 1))[:count]
    header = repr({"descr": "<f4", "fortran_order": False, "shape": tuple(shape)})
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        f.write(struct.pack(f"<{count}f", *values))


def shapes_of(op, head_dim, longer):
    """Shapes of the tensors of a run, and its scores."""
    heads, queries, keys = 1, 256, 256
    if op == "dbias":  # sums over heads
        heads = 4 if longer else 2
    elif op.startswith("backward"):
        queries *= 2 if longer else 1
    else:
        keys *= 2 if longer else 1
    q, k = (1, heads, queries, head_dim), (1, heads, keys, head_dim)
    shapes = {"q": q, "k": k, "v": k}
    if "jvp" in op:
        shapes |= {"tq": q, "tk": k, "tv": k}
    if op.startswith("backward") or op == "dbias":
        shapes["do"] = q
    if op == "backward-jvp":
        shapes["tdo"] = q
    if op == "dbias":
        shapes["bias"] = (1, 1, queries, keys)
    return shapes, heads * queries * keys


def profile(build, arch, op, dtype, head_dim, longer):
    """The launch of the kernel in a run of `pfattn`, and the run's scores."""
    shapes, scores = shapes_of(op, head_dim, longer)
    with tempfile.TemporaryDirectory() as scratch:
        command = [str(build / "tools/pfattn/pfattn"), "run", "backward" if op == "dbias" else op,
                   "--backend", "hip", "--dtype", dtype, "--out", scratch]
        for seed, (name, shape) in enumerate(shapes.items()):
            write_npy(f"{scratch}/{name}.npy", shape, seed)
            command += ["--" + name, f"{scratch}/{name}.npy"]
        environment = dict(os.environ, PFATTN_HIP_LIBRARY=str(build / "tests/amdgcn-sim/libamdhip64.so"),
                           AMDGCN_SIM_ARCH=arch, AMDGCN_SIM_UNITS="1", AMDGCN_SIM_PROFILE=f"{scratch}/profile")
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"amd_cost.py: {' '.join(command)} failed:\n{done.stderr}")
        launches = [x for x in read_profile(f"{scratch}/profile") if x[0] == KERNELS[op]]
    if len(launches) != 1:
        sys.exit(f"amd_cost.py: {op} in {dtype} at D {head_dim} launched {KERNELS[op]} {len(launches)} times")
    return launches[0], scores


def measure(build, arch, op, dtype, head_dim):
    """Instructions and their counts for a block of 32 x 32 scores, and how the kernel is launched."""
    short, few = profile(build, arch, op, dtype, head_dim, False)
    long, many = profile(build, arch, op, dtype, head_dim, True)
    blocks = (many - few) / 1024
    instructions = {}
    for offset, (text, counts) in long[-1].items():
        before = short[-1].get(offset, (text, [0] * len(counts)))[1]
        if counts[0] != before[0]:
            instructions[offset] = (text, [(a - b) / blocks for a, b in zip(counts, before)])
    return instructions, {"threads": short[2], "lds": short[3], "registers": short[4],
                          "owned": 256 * 2 // short[1] if op == "dbias" else 256 / short[1]}


def count(chip, instructions):
    """Totals over all waves. Times are cycles of a SIMD (mfma, valu, serial) or of the unit (lds, memory)."""
    sums = dict.fromkeys(["mfma", "valu", "slow", "lds", "conflicts", "memory", "bytes", "serial", "mfma_count",
                          "valu_count", "salu_count", "lds_count", "memory_count"], 0)
    for text, (times, cycles, least, lines, size) in instructions.values():
        name = text.split()[0]
        serial = times * ISSUE
        if name.startswith("v_mfma_"):
            serial = times * matrix_cycles(chip, name)
            sums["mfma"] += serial
            sums["mfma_count"] += times
        elif name.startswith("v_"):
            slow = SLOW.match(name) is not None
            serial = times * ISSUE * (4 if slow else 1)
            sums["valu"] += serial
            sums["slow"] += serial if slow else 0
            sums["valu_count"] += times
        elif name.startswith("ds_"):
            # Exchanges between lanes store nothing, and pass 32 lanes a cycle.
            cycles = cycles or 2 * times
            serial += cycles
            sums["lds"] += cycles
            sums["conflicts"] += cycles - (least or cycles)
            sums["lds_count"] += times
        elif name.startswith("s_nop"):
            serial *= 1 + int(text.split()[1], 0)
            sums["salu_count"] += times
        elif name.startswith("s_"):
            sums["salu_count"] += times
        else:
            sums["memory"] += max(times * ADDRESS_CYCLES, lines * 64 / CHIPS[chip]["l2"])
            sums["bytes"] += size
            sums["memory_count"] += times
        sums["serial"] += serial
    return sums


def residency(chip, launch):
    """Waves that one compute unit holds."""
    waves = -(-launch["threads"] // 64)
    by_registers = min(WAVES, REGISTERS // launch["registers"]) * SIMDS // waves
    by_lds = CHIPS[chip]["lds"] // launch["lds"] if launch["lds"] else by_registers
    return waves * max(1, min(by_registers, by_lds))


def evaluate(chip, op, head_dim, instructions, launch):
    """The row of a kernel: cycles of a compute unit for 32 x 32 scores, unit by unit, and the bound."""
    sums = count(chip, instructions)
    waves = residency(chip, launch)
    simds = min(SIMDS, waves)
    units = {"MFMA": sums["mfma"] / simds, "VALU": sums["valu"] / simds, "LDS": sums["lds"],
             "memory": sums["memory"], "waves": sums["serial"] / waves}
    bound = max(units, key=units.get)
    flops = FLOPS[op] * 2 * head_dim * 1024
    tflops = flops * CHIPS[chip]["units"] * CHIPS[chip]["clock"] / units[bound] / 1000
    return {"units": units, "bound": bound, "cycles": units[bound], "waves": waves / SIMDS, "counts": sums,
            "mfma_share": sums["mfma"] / SIMDS / units[bound], "tflops": tflops, "launch": launch}


def listing(chip, instructions):
    for offset, (text, (times, cycles, least, lines, size)) in sorted(instructions.items()):
        if not text.startswith(("v_", "s_")):
            print(f"    {offset:6x} {times:8.2f} x  LDS {cycles:7.2f} (least {least:7.2f})  "
                  f"lines {lines:7.2f}  bytes {size:8.1f}  {text}")


HEADER = "| chip | kernel | type | D | waves | MFMA | VALU | LDS | conflicts | memory | bytes | in turn | bound | MFMA share | TFLOP/s |"


def table_row(chip, op, dtype, head_dim, row):
    units = row["units"]
    return (f"| {chip} | {op} | {dtype} | {head_dim} | {row['waves']:g} | {units['MFMA']:.0f} | {units['VALU']:.0f} | "
            f"{units['LDS']:.0f} | {row['counts']['conflicts']:.0f} | {units['memory']:.0f} | "
            f"{row['counts']['bytes']:.0f} | {units['waves']:.0f} | {row['bound']} | {row['mfma_share']:.2f} | "
            f"{row['tflops']:.0f} |")


def words(text):
    return text.split(",")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--arch", type=words, default=list(CHIPS))
    parser.add_argument("--op", type=words, default=list(KERNELS))
    parser.add_argument("--dtype", type=words, default=["f16", "bf16"])
    parser.add_argument("--head-dim", type=words, default=["64", "128", "256"])
    parser.add_argument("--listing", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(HEADER)
    print("|---" * (HEADER.count("|") - 1) + "|")
    rows = []
    for chip in options.arch:
        for op in options.op:
            for dtype in options.dtype:
                for head_dim in map(int, options.head_dim):
                    instructions, launch = measure(options.build.resolve(), chip, op, dtype, head_dim)
                    row = evaluate(chip, op, head_dim, instructions, launch)
                    print(table_row(chip, op, dtype, head_dim, row), flush=True)
                    if options.listing:
                        listing(chip, instructions)
                    rows.append({"chip": chip, "op": op, "dtype": dtype, "head_dim": head_dim, **row})
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
