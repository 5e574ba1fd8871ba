# SPDX-License-Identifier: Apache-2.0
"""pfattn on torch tensors, through ctypes: what the benchmarks and the GPU validation call.

Tensors are [B, H, S, C] views of any strides, on one CUDA device. Calls run on torch's current stream.
"""
import ctypes

import torch

DTYPES = {torch.float16: 1, torch.bfloat16: 2, torch.float32: 3, torch.float8_e5m2: 5, torch.uint8: 6,
          torch.bool: 6}
BACKEND_CUDA = 2
FORWARD, BACKWARD, BACKWARD_JVP = 0, 1, 2
CAUSAL, ALPHA, DIAGONAL, DETERMINISTIC = 1, 2, 4, 8
NAMES = ("q k v bias mask q2 k2 tq tk tv tbias tq2 tk2 o lse to tlse dout dlse tdout "
         "dq dk dv dbias dq2 dk2 tdq tdk tdv tdbias tdq2 tdk2").split()


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int),
                ("shape", ctypes.c_int64 * 4), ("stride", ctypes.c_int64 * 4)]

    @classmethod
    def of(cls, t):
        """lse tensors may come as [B, H, M]."""
        t = t if t.dim() == 4 else t.unsqueeze(-1)
        return cls(t.data_ptr(), DTYPES[t.dtype], (ctypes.c_int64 * 4)(*t.shape),
                   (ctypes.c_int64 * 4)(*t.stride()))


class Attention(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("flags", ctypes.c_uint32),
                ("alpha", ctypes.c_double), ("diagonal", ctypes.c_int64),
                ("distance", ctypes.c_int64)] + [(name, Tensor) for name in NAMES]


class HandleOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("backend", ctypes.c_int),
                ("device", ctypes.c_int32)]


class Library:
    """One handle on the current CUDA device."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.pfattn_last_error.restype = ctypes.c_char_p
        self.calls = {FORWARD: self.lib.pfattn_forward, BACKWARD: self.lib.pfattn_backward,
                      BACKWARD_JVP: self.lib.pfattn_backward_jvp}
        for call in self.calls.values():
            call.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
                             ctypes.c_void_p]
        self.lib.pfattn_workspace_size.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p,
                                                   ctypes.c_void_p]
        self.handle = ctypes.c_void_p()
        options = HandleOptions(ctypes.sizeof(HandleOptions), BACKEND_CUDA,
                                torch.cuda.current_device())
        self.check(self.lib.pfattn_create(ctypes.byref(options), ctypes.byref(self.handle)))

    def check(self, status):
        if status:
            raise RuntimeError(self.lib.pfattn_last_error().decode())

    def prepare(self, operation, *, causal=False, alpha=None, diagonal=None, distance=0,
                deterministic=False, **tensors):
        """A function that makes the call; its descriptor and scratch are built once. Its `call` and `arguments` (all
        but the stream) make the same call without what Python adds."""
        flags = (CAUSAL * causal | ALPHA * (alpha is not None) |
                 DIAGONAL * (diagonal is not None) | DETERMINISTIC * deterministic)
        args = Attention(ctypes.sizeof(Attention), flags, alpha or 0.0, diagonal or 0, distance)
        for name, t in tensors.items():
            setattr(args, name, Tensor.of(t))
        size = ctypes.c_size_t()
        self.check(self.lib.pfattn_workspace_size(self.handle, operation, ctypes.byref(args),
                                                  ctypes.byref(size)))
        scratch = torch.empty(size.value, dtype=torch.uint8, device="cuda")
        call = self.calls[operation]
        arguments = (self.handle, ctypes.byref(args), scratch.data_ptr(), size.value)

        def run():
            self.check(call(*arguments, torch.cuda.current_stream().cuda_stream))
        run.call, run.arguments, run.keep = call, arguments, (args, scratch, tensors)
        return run

    def no_operation(self):
        """pfattn_version as a function of the five arguments of a call, all of which it ignores: what such a call
        costs in ctypes alone."""
        return ctypes.CFUNCTYPE(ctypes.c_int, *self.calls[FORWARD].argtypes)(("pfattn_version", self.lib))
