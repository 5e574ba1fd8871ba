#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attention and its directional derivative from Python through ctypes, on the CPU in float64.

The derivative of the output along a direction of the queries, from one forward + JVP call, against
the central difference of two forward calls.

    python3 attention.py [/path/to/libpfattn.so]
"""
import ctypes
import sys

SUCCESS, DTYPE_F64, BACKEND_REF, FORWARD, FLAG_CAUSAL = 0, 4, 1, 0, 1


class Tensor(ctypes.Structure):
    """pfattn_tensor. An all-zero one is absent."""
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int),
                ("shape", ctypes.c_int64 * 4), ("stride", ctypes.c_int64 * 4)]


class Attention(ctypes.Structure):
    """pfattn_attention."""
    _fields_ = [("struct_size", ctypes.c_size_t), ("flags", ctypes.c_uint32),
                ("alpha", ctypes.c_double), ("diagonal", ctypes.c_int64),
                ("distance", ctypes.c_int64)] + [(name, Tensor) for name in (
                    "q k v bias mask q2 k2 tq tk tv tbias tq2 tk2 o lse to tlse dout dlse tdout "
                    "dq dk dv dbias dq2 dk2 tdq tdk tdv tdbias tdq2 tdk2").split()]


class HandleOptions(ctypes.Structure):
    """pfattn_handle_options."""
    _fields_ = [("struct_size", ctypes.c_size_t), ("backend", ctypes.c_int),
                ("device", ctypes.c_int32)]


lib = ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else "libpfattn.so.0")
lib.pfattn_last_error.restype = ctypes.c_char_p
lib.pfattn_version_string.restype = ctypes.c_char_p
lib.pfattn_destroy.argtypes = [ctypes.c_void_p]
lib.pfattn_destroy.restype = None
lib.pfattn_workspace_size.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(Attention),
                                      ctypes.POINTER(ctypes.c_size_t)]
lib.pfattn_forward.argtypes = [ctypes.c_void_p, ctypes.POINTER(Attention), ctypes.c_void_p,
                               ctypes.c_size_t, ctypes.c_void_p]

BATCH, HEADS, LENGTH, CHANNELS = 1, 2, 6, 8
COUNT = BATCH * HEADS * LENGTH * CHANNELS


def check(status):
    if status != SUCCESS:
        raise RuntimeError(lib.pfattn_last_error().decode())


def tensor(buffer, channels=CHANNELS):
    """A contiguous [BATCH, HEADS, LENGTH, channels] view of a ctypes array."""
    return Tensor(ctypes.addressof(buffer), DTYPE_F64,
                  (ctypes.c_int64 * 4)(BATCH, HEADS, LENGTH, channels),
                  (ctypes.c_int64 * 4)(HEADS * LENGTH * channels, LENGTH * channels, channels, 1))


def numbers(seed):
    """Some numbers between -1 and 1."""
    return (ctypes.c_double * COUNT)(*(((i * seed) % 101 - 50) / 50 for i in range(COUNT)))


def forward(handle, q, k, v, tq=None):
    """O, and with a tangent of q also its derivative."""
    o, to = (ctypes.c_double * COUNT)(), (ctypes.c_double * COUNT)()
    args = Attention(struct_size=ctypes.sizeof(Attention), flags=FLAG_CAUSAL)
    args.q, args.k, args.v, args.o = tensor(q), tensor(k), tensor(v), tensor(o)
    if tq is not None:
        args.tq, args.to = tensor(tq), tensor(to)
    size = ctypes.c_size_t()
    check(lib.pfattn_workspace_size(handle, FORWARD, args, size))
    scratch = ctypes.create_string_buffer(size.value + 256)
    start = (ctypes.addressof(scratch) + 255) // 256 * 256
    check(lib.pfattn_forward(handle, args, start, size.value, None))
    return o, to


def main():
    handle = ctypes.c_void_p()
    options = HandleOptions(ctypes.sizeof(HandleOptions), BACKEND_REF, 0)
    check(lib.pfattn_create(ctypes.byref(options), ctypes.byref(handle)))
    q, k, v, tq = numbers(37), numbers(53), numbers(71), numbers(89)
    _, to = forward(handle, q, k, v, tq)

    step = 1e-5
    ahead, _ = forward(handle, (ctypes.c_double * COUNT)(*(a + step * b for a, b in zip(q, tq))),
                       k, v)
    behind, _ = forward(handle, (ctypes.c_double * COUNT)(*(a - step * b for a, b in zip(q, tq))),
                        k, v)
    difference = [(a - b) / (2 * step) for a, b in zip(ahead, behind)]
    error = max(abs(a - b) for a, b in zip(to, difference))
    print(f"pfattn {lib.pfattn_version_string().decode()}: largest tangent "
          f"{max(map(abs, to)):.4f}, largest difference from the central difference {error:.1e}")
    lib.pfattn_destroy(handle)
    return 0 if error < 1e-8 < max(map(abs, to)) else 1


if __name__ == "__main__":
    sys.exit(main())
