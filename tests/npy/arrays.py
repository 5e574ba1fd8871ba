# SPDX-License-Identifier: Apache-2.0
"""NumPy's side of the .npy tests.

    arrays.py make DIR     write files for the C reader, and DIR/manifest that lists them
    arrays.py check DIR    load the files that the C writer left in DIR and check every element

Element i in C order is the value of `element(type, i)`; test_npy.c has the same formula.
"""
import itertools
import os
import sys

import numpy as np

SHAPES = [(), (0,), (1,), (5,), (3, 4), (2, 3, 4), (2, 0, 3), (1, 2, 1, 3, 2, 2, 1, 2)]
TYPES = ["f2", "f4", "f8", "u1", "b1", "i8"]


def element(code, i):
    if code == "u1":
        return i * 37 % 256
    if code == "b1":
        return i % 3 == 0
    if code == "i8":
        return (i - 7) * 1234567890123
    return ((i * 7) % 23 - 11) / 4


def filled(code, shape):
    count = int(np.prod(shape, dtype=np.int64))
    return np.array([element(code, i) for i in range(count)], dtype=code).reshape(shape)


def make(directory):
    manifest = open(os.path.join(directory, "manifest"), "w")
    number = 0
    for code, shape, order, endian, version in itertools.product(
            TYPES, SHAPES, "CF", "<>", [(1, 0), (2, 0), (3, 0)]):
        array = filled(code, shape).astype(endian + code)
        # asfortranarray would turn a scalar into a vector
        array = np.array(array, order=order)
        name = f"a{number}.npy"
        number += 1
        with open(os.path.join(directory, name), "wb") as file:
            np.lib.format.write_array(file, array, version=version)
        print(name, code, array.ndim, *array.shape, file=manifest)
    nans = {
        "f2": np.array([0x7c01, 0x7e00, 0xffff, 0xfc01, 0x8000, 0x0001], "u2").view("f2"),
        "f4": np.array([0x7f800001, 0x7fc00000, 0xffffffff, 0xff800001, 0x80000000, 1],
                       "u4").view("f4"),
        "f8": np.array([0x7ff0000000000001, 0x7ff8000000000000, 0xffffffffffffffff,
                        0xfff0000000000001, 0x8000000000000000, 1], "u8").view("f8"),
    }
    for code, array in nans.items():
        np.save(os.path.join(directory, f"nan-{code}.npy"), array)
        raw = array.view("u" + code[1]).byteswap()
        np.save(os.path.join(directory, f"nan-{code}-big.npy"), raw.view(">" + code))


def check(directory):
    for code in TYPES:
        for number, shape in enumerate(SHAPES):
            path = os.path.join(directory, f"w-{code}-{number}.npy")
            array = np.load(path)
            want = filled(code, shape)
            assert array.dtype == want.dtype, (path, array.dtype)
            assert array.shape == want.shape, (path, array.shape)
            assert array.tobytes() == want.tobytes(), path
            with open(path, "rb") as file:
                version = np.lib.format.read_magic(file)
                np.lib.format.read_array_header_1_0(file)
                assert version == (1, 0) and file.tell() % 64 == 0, path


if __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](sys.argv[2])
