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
import struct
import subprocess
import sys
from pathlib import Path

MEGABYTES_A_TARGET = 40
REGISTERS = 65536  # of a multiprocessor, all chips from 8.0 on
SHARED_BYTES = {"sm_80": 99 * 1024, "sm_90a": 227 * 1024}
PASS_THREADS = 256
GENERAL = 4  # PF_VARIANT_GENERAL: added in the rows of general images

# What ptxas says where it waits for each product of Hopper's before the next, which halves the speed.
SERIALIZED = re.compile(r"C75\d\d.*serializ.*", re.IGNORECASE)

# Kernels whose speed is promised: no spills. On sm_90a the producer warp, which has given its registers
# away, may spill what it knows of its work; the consumers may not, in their loops over tiles.
HOT = re.compile(r"(sm_80|sm_90a)\.(forward|forward_jvp|backward)\.(f16|bf16)\.(64|128)\.plain(\.v\d)?"
                 r"|sm_80\.forward\.f32\.(64|128|256)\.(plain|general)"
                 r"|sm_90a\.(forward|forward_jvp)\.(f16|bf16)\.256\.plain(\.v\d)?"
                 r"|sm_90a\.forward\.(f16|bf16)\.(64|128|256)\.general(\.v\d)?"
                 r"|sm_90a\.(forward_jvp|backward)\.(f16|bf16)\.64\.general"
                 r"|sm_90a\.forward_jvp\.(f16|bf16)\.256\.general")

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


# Opcodes of Hopper machine code: the low 12 bits of its 16-byte instructions.
WGMMA, SET_MAX_REGISTERS, BRANCH, SPILLS = 0x9f0, 0x9c8, 0x947, (0x387, 0x983)


def sections(elf):
    """Name and contents of each section of a 64-bit ELF image."""
    table, = struct.unpack_from("<Q", elf, 40)
    count, names = struct.unpack_from("<HH", elf, 60)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + 64 * i) for i in range(count)]
    for name, _, _, _, offset, size in headers:
        start = headers[names][4] + name
        yield elf[start:elf.index(0, start)].decode(), elf[offset:offset + size]


def branch(code, at):
    """Where the instruction at a byte offset branches to: 4-byte words from the next, 8 bits apart from the rest."""
    low, = struct.unpack_from("<Q", code, at)
    high, = struct.unpack_from("<Q", code, at + 8)
    words = (low >> 16 & 0xff) | ((low >> 34 | high << 30) & (1 << 40) - 1) << 8
    return at + 16 + 4 * (words - (words >> 47 << 48))


def consumers_spill(fatbin, kernel):
    """Whether a kernel with warp roles spills where its consumers loop over tiles.

    What they know of an item of work they may spill before such a loop, and find again behind it.
    """
    elf = fatbin[fatbin.index(b"\x7fELF"):]
    code = dict(sections(elf))[f".text.{kernel}"]
    opcodes = [struct.unpack_from("<H", code, at)[0] & 0xfff for at in range(0, len(code), 16)]
    roles = [i for i, opcode in enumerate(opcodes) if opcode == SET_MAX_REGISTERS]
    products = [i for i, opcode in enumerate(opcodes) if opcode == WGMMA]
    if len(roles) != 2 or not products or products[-1] > roles[1]:
        return True  # not laid out as expected: nothing can be said for it
    loops = [range(branch(code, 16 * i) // 16, i + 1) for i, opcode in enumerate(opcodes[:roles[1]])
             if opcode == BRANCH]
    innermost = []  # code that was moved out of a loop branches back too, over more than the loop
    for loop in sorted((x for x in loops if any(i in x for i in products)), key=len):
        if not any(loop.start < x.stop and x.start < loop.stop for x in innermost):
            innermost.append(loop)
    return not innermost or any(opcodes[i] in SPILLS for loop in innermost for i in loop)


def expected_kernels(op):
    if op == "passes":
        return {"pf_key_live", "pf_backward_pre", "pf_backward_pre_jvp", "pf_dbias_reduce", "pf_merge",
                "pf_merge_splits", "pf_merge_splits_jvp", "pf_widen", "pf_narrow"}
    names = {"pf_" + op}
    if op in ("backward", "backward_jvp"):
        names.add(f"pf_{op}_dq")
    return names


def read_tuning(program):
    """(threads, blocks, shared bytes) by (target, op, class, head dimension, variant)."""
    rows = {}
    for line in subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines():
        target, op, element_class, head_dim, variant, *numbers = line.split()
        rows[target, op, element_class, head_dim, variant] = tuple(map(int, numbers))
    return rows


def tuning_of(rows, image):
    target, op, *rest = image.split(".")
    if op == "passes":
        return PASS_THREADS, 1, 0
    element, head_dim, kind, *variant = rest
    key = target, op, {"f32": "f32", "e5m2": "e5m2"}.get(element, "half"), head_dim
    number = int(variant[0][1:]) if variant else 0
    if kind == "general" and (*key, str(GENERAL + number)) in rows:
        return rows[*key, str(GENERAL + number)]
    return rows[*key, str(number)]


def check_image(rows, image, kernels, report, code):
    """Sentences about what is wrong. `report` is what ptxas said, `code` the image itself."""
    target, op = image.split(".")[:2]
    threads, blocks, shared = tuning_of(rows, image)
    missing = expected_kernels(op) - {k.name for k in kernels}
    faults = [f"{image}: has no kernel {name}" for name in sorted(missing)]
    faults += [f"{image}: {line}" for line in SERIALIZED.findall(report)]
    for k in kernels:
        if (k.spills > 0 and HOT.fullmatch(image) and k.name == "pf_" + op
                and (target != "sm_90a" or consumers_spill(code, k.name))):
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
    codes = {f.name[:-len(".fatbin")]: f.read_bytes() for f in files if f.suffix == ".fatbin"}
    sizes = collections.Counter()
    for name, code in codes.items():
        sizes[name.split(".")[0]] += len(code)
    faults = []
    print(f"{'image':42} {'kernel':20} {'threads':>7} {'regs':>5} {'stack':>6} {'spills':>6} {'shared':>7}")
    for image in sorted(reports):
        kernels = parse_report(image, reports[image])
        threads, _, shared = tuning_of(rows, image)
        for k in kernels:
            dynamic = shared if k.name == "pf_" + image.split(".")[1] else 0
            print(f"{image:42} {k.name:20} {threads:7} {k.registers:5} {k.stack:6} {k.spills:6} "
                  f"{k.static_shared + dynamic:7}")
        faults += check_image(rows, image, kernels, reports[image], codes.get(image, b""))
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
