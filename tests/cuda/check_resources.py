#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the compiled kernels use: registers, spills and shared memory.

    check_resources.py PRINT_TUNING FILE...

FILE is an image, sm_80.forward.f16.64.plain.fatbin, or what ptxas said of it, the same with .txt. Prints a
table and fails where a hot kernel spills, an image lacks a kernel that the host will ask it for, a kernel
has more registers or shared memory than its threads can get, or a target's images are too large together.
"""
import collections
import re
import subprocess
import sys
from pathlib import Path

MEGABYTES_A_TARGET = 40
REGISTERS = 65536  # of a multiprocessor, all chips from 8.0 on
SHARED_BYTES = {"sm_80": 99 * 1024, "sm_90a": 227 * 1024}
PASS_THREADS = 256

# Kernels whose speed is promised: no spills.
HOT = re.compile(r"(sm_80|sm_90a)\.(forward|forward_jvp|backward)\.(f16|bf16)\.(64|128)\.plain"
                 r"|sm_90a\.forward\.(f16|bf16)\.256\.plain")

Kernel = collections.namedtuple("Kernel", "image name registers stack spills static_shared")


def parse_report(image, text):
    """The kernels of one report of ptxas -v."""
    kernels = []
    name = stack = spills = None
    for line in text.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            name = match[1]
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes", line):
            stack, spills = int(match[1]), int(match[2]) + int(match[3])
        elif match := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            kernels.append(Kernel(image, name, int(match[1]), stack, spills,
                                  int(shared[1]) if shared else 0))
    return kernels


def expected_kernels(op):
    if op == "passes":
        return {"pf_key_live", "pf_backward_pre", "pf_dbias_reduce", "pf_merge"}
    names = {"pf_" + op}
    if op in ("backward", "backward_jvp"):
        names.add(f"pf_{op}_dq")
    return names


def read_tuning(program):
    """(threads, blocks, shared bytes) by (target, op, class, head dimension)."""
    rows = {}
    for line in subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines():
        target, op, element_class, head_dim, *numbers = line.split()
        rows[target, op, element_class, head_dim] = tuple(map(int, numbers))
    return rows


def tuning_of(rows, image):
    target, op, *rest = image.split(".")
    if op == "passes":
        return PASS_THREADS, 1, 0
    element, head_dim = rest[0], rest[1]
    return rows[target, op, {"f32": "f32", "e5m2": "e5m2"}.get(element, "half"), head_dim]


def check_image(rows, image, kernels):
    """Sentences about what is wrong."""
    target, op = image.split(".")[:2]
    threads, blocks, shared = tuning_of(rows, image)
    missing = expected_kernels(op) - {k.name for k in kernels}
    faults = [f"{image}: has no kernel {name}" for name in sorted(missing)]
    for k in kernels:
        if k.spills > 0 and HOT.fullmatch(image) and k.name == "pf_" + op:
            faults.append(f"{image}: {k.name} is a hot kernel and spills {k.spills} bytes")
        # Registers are given to warps in units of 8 a thread.
        if -(-k.registers // 8) * 8 * threads * blocks > REGISTERS:
            faults.append(f"{image}: {k.name} uses {k.registers} registers, too many for {blocks} "
                          f"blocks of {threads} threads")
        if k.static_shared + shared > SHARED_BYTES[target]:
            faults.append(f"{image}: {k.name} uses {k.static_shared + shared} bytes of shared memory; "
                          f"at most {SHARED_BYTES[target]} are there")
    return faults


def main():
    rows = read_tuning(sys.argv[1])
    files = [Path(name) for name in sys.argv[2:]]
    reports = {f.name[:-len(".txt")]: f.read_text(encoding="utf-8") for f in files if f.suffix == ".txt"}
    sizes = collections.Counter()
    for f in files:
        if f.suffix == ".fatbin":
            sizes[f.name.split(".")[0]] += f.stat().st_size
    faults = []
    print(f"{'image':42} {'kernel':20} {'threads':>7} {'regs':>5} {'stack':>6} {'spills':>6} {'shared':>7}")
    for image in sorted(reports):
        kernels = parse_report(image, reports[image])
        threads, _, shared = tuning_of(rows, image)
        for k in kernels:
            dynamic = shared if k.name == "pf_" + image.split(".")[1] else 0
            print(f"{image:42} {k.name:20} {threads:7} {k.registers:5} {k.stack:6} {k.spills:6} "
                  f"{k.static_shared + dynamic:7}")
        faults += check_image(rows, image, kernels)
    for target, size in sizes.items():
        print(f"{target}: {size / 1e6:.1f} MB")
        if size > MEGABYTES_A_TARGET * 1e6:
            faults.append(f"{target}: its images have {size / 1e6:.1f} MB; at most "
                          f"{MEGABYTES_A_TARGET} are allowed")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults or not reports else 0


if __name__ == "__main__":
    sys.exit(main())
