#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the code objects that ship use: registers, scratch memory and LDS, as their metadata says.

    check_resources.py TUNING_H FILE.co...

FILE is an image, gfx90a.forward.f16.64.plain.co. Prints a table and fails where a hot kernel has
scratch memory, an image lacks a kernel that the host will ask it for, a kernel uses more LDS than
there is or leaves room for fewer waves than the tuning table says, or a main kernel has no matrix
instruction, or a hot one no 16-byte load of memory or access to LDS.
"""
import re
import struct
import sys
from pathlib import Path

LDS_BYTES = 65536
REGISTERS = 512  # of a lane of a SIMD, VGPRs and AGPRs together, in units of 8 a wave
METADATA_NOTE = 32  # NT_AMDGPU_METADATA
PASSES = {"pf_key_live", "pf_backward_pre", "pf_backward_pre_jvp", "pf_dbias_reduce", "pf_merge",
          "pf_merge_splits", "pf_merge_splits_jvp", "pf_widen", "pf_narrow"}

# Kernels whose speed is promised.
HOT = re.compile(r"gfx\w+\.(forward|forward_jvp|backward)\.(f16|bf16)\.(64|128)\.plain(\.v\d)?")


def unpack(data, at):
    """One MessagePack value at an offset, and the offset after it."""
    tag = data[at]
    at += 1
    if tag < 0x80:
        return tag, at
    if tag >= 0xE0:
        return tag - 256, at
    if tag < 0x90:
        return unpack_map(data, at, tag & 15)
    if tag < 0xA0:
        return unpack_list(data, at, tag & 15)
    if tag < 0xC0:
        return data[at:at + (tag & 31)].decode(), at + (tag & 31)
    if tag in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[tag], at
    sized = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
             0xD9: ">B", 0xDA: ">H", 0xDB: ">I", 0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I"}[tag]
    value = struct.unpack_from(sized, data, at)[0]
    at += struct.calcsize(sized)
    if tag <= 0xD3:
        return value, at
    if tag <= 0xDB:
        return data[at:at + value].decode(), at + value
    return unpack_list(data, at, value) if tag <= 0xDD else unpack_map(data, at, value)


def unpack_list(data, at, count):
    items = []
    for _ in range(count):
        item, at = unpack(data, at)
        items.append(item)
    return items, at


def unpack_map(data, at, count):
    items = {}
    for _ in range(count):
        key, at = unpack(data, at)
        items[key], at = unpack(data, at)
    return items, at


def sections(elf):
    """(type, bytes) of each section of a 64-bit little-endian ELF file."""
    table, = struct.unpack_from("<Q", elf, 40)
    size, count = struct.unpack_from("<HH", elf, 58)
    for i in range(count):
        _, kind, _, _, offset, length = struct.unpack_from("<IIQQQQ", elf, table + i * size)
        yield kind, elf[offset:offset + length] if kind != 8 else b""


def kernels_of(elf):
    """The kernels that the metadata note describes."""
    for kind, data in sections(elf):
        at = 0
        while kind == 7 and at + 12 <= len(data):
            name_size, size, note = struct.unpack_from("<III", data, at)
            start = at + 12 + (name_size + 3) // 4 * 4
            if note == METADATA_NOTE:
                return unpack(data[start:start + size], 0)[0]["amdhsa.kernels"]
            at = start + (size + 3) // 4 * 4
    return []


# (mask, value) of the first word of an instruction, by the encodings VOP3P-MAI, FLAT and DS of the ISA manuals:
# the encoding, the operation, and for FLAT the segment.
MATRIX = (0xFFC00000, 0b110100111 << 23 | 1 << 22)
WIDE = {"global_load_dwordx4": (0xFDFCC000, 0b110111 << 26 | 23 << 18 | 2 << 14),
        "ds_read_b128": (0xFDFE0000, 0b110110 << 26 | 255 << 17),
        "ds_write_b128": (0xFDFE0000, 0b110110 << 26 | 223 << 17)}


def has_instruction(elf, pattern):
    """Whether any word of the code looks like it."""
    mask, value = pattern
    for kind, data in sections(elf):
        if kind == 1 and any(word & mask == value for word, in struct.iter_unpack("<I", data[:len(data) // 4 * 4])):
            return True
    return False


def read_tuning(path):
    """Waves by (operation, class, head dimension, variant)."""
    text = Path(path).read_text(encoding="utf-8")
    rows = re.findall(r"^ +(?:ROW\(|VARIANT\((\d), +)(\w+), +(\w+), +(\d+),.*?(\d+)\)$", text, re.M)
    return {(op.lower(), kind, int(head_dim), int(variant or 0)): int(waves)
            for variant, op, kind, head_dim, waves in rows}


def waves_wanted(rows, image):
    op, *rest = image.split(".")[1:]
    if op == "passes":
        return 4
    variant = int(rest[3][1:]) if len(rest) > 3 else 0
    return rows[op, {"f32": "F32", "e5m2": "E5M2"}.get(rest[0], "HALF"), int(rest[1]), variant]


def check_image(rows, image, elf):
    """Sentences about what is wrong."""
    op = image.split(".")[1]
    main = "pf_" + op
    kernels = {k[".name"]: k for k in kernels_of(elf)}
    expected = PASSES if op == "passes" else {main} | ({main + "_dq"} if op.startswith("backward") else set())
    faults = [f"{image}: has no kernel {name}" for name in sorted(expected - set(kernels))]
    if op != "passes" and not has_instruction(elf, MATRIX):
        faults.append(f"{image}: has no matrix instruction")
    if HOT.fullmatch(image):
        faults += [f"{image}: is hot and has no {name}" for name, pattern in WIDE.items()
                   if not has_instruction(elf, pattern)]
    for name, k in sorted(kernels.items()):
        registers, scratch = k[".vgpr_count"], k[".private_segment_fixed_size"]
        lds, spills = k[".group_segment_fixed_size"], k[".vgpr_spill_count"]
        waves = min(8, REGISTERS // (-(-max(registers, 1) // 8) * 8))
        print(f"{image:38} {name:20} {registers:5} {k['.agpr_count']:5} {scratch:7} {spills:6} {lds:6} {waves:5}")
        if HOT.fullmatch(image) and name == main and scratch > 0:
            faults.append(f"{image}: {name} is a hot kernel and has {scratch} bytes of scratch memory")
        if lds > LDS_BYTES:
            faults.append(f"{image}: {name} uses {lds} bytes of LDS; {LDS_BYTES} are there")
        if waves < waves_wanted(rows, image):
            faults.append(f"{image}: {name} uses {registers} registers, which leave room for {waves} waves; "
                          f"{waves_wanted(rows, image)} are wanted")
    return faults


def main():
    rows = read_tuning(sys.argv[1])
    files = sorted(Path(name) for name in sys.argv[2:])
    print(f"{'image':38} {'kernel':20} {'regs':>5} {'agprs':>5} {'scratch':>7} {'spills':>6} {'LDS':>6} {'waves':>5}")
    faults = []
    for file in files:
        faults += check_image(rows, file.name[:-len(".co")], file.read_bytes())
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults or not files else 0


if __name__ == "__main__":
    sys.exit(main())
