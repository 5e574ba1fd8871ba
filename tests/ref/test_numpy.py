# SPDX-License-Identifier: Apache-2.0
"""The reference in f64 against numpy_attention.py, to 1e-12, on random problems that combine every
feature: layouts, masks, piecewise, GQA, garbage at keys nobody keeps, subsets of the outputs.
Usage: test_numpy.py LIBRARY [FIRST-SEED COUNT]"""
import ctypes
import sys

import numpy as np

import numpy_attention as na

F64, F32, U8 = 4, 3, 6
ALPHA, CAUSAL, DIAGONAL, DETERMINISTIC = 2, 1, 4, 8
FIELDS = ("q k v bias mask q2 k2 tq tk tv tbias tq2 tk2 o lse to tlse dout dlse tdout "
          "dq dk dv dbias dq2 dk2 tdq tdk tdv tdbias tdq2 tdk2").split()


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int),
                ("shape", ctypes.c_int64 * 4), ("stride", ctypes.c_int64 * 4)]


class Attention(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("flags", ctypes.c_uint32),
                ("alpha", ctypes.c_double), ("diagonal", ctypes.c_int64),
                ("distance", ctypes.c_int64)] + [(name, Tensor) for name in FIELDS]


class Merge(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, Tensor) for name in "o0 lse0 to0 tlse0 o1 lse1 to1 tlse1 o lse to tlse".split()]


class Options(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("backend", ctypes.c_int),
                ("device", ctypes.c_int32)]


def tensor(array):
    dtype = {np.dtype("f8"): F64, np.dtype("f4"): F32, np.dtype("u1"): U8}[array.dtype]
    if array.ndim == 3:
        array = array[..., None]
    strides = [s // array.itemsize for s in array.strides]
    return Tensor(array.ctypes.data, dtype, (ctypes.c_int64 * 4)(*array.shape),
                  (ctypes.c_int64 * 4)(*strides))


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.pfattn_last_error.restype = ctypes.c_char_p
        self.handle = ctypes.c_void_p()
        self.check(self.lib.pfattn_create(ctypes.byref(Options(ctypes.sizeof(Options), 1, 0)),
                                          ctypes.byref(self.handle)))

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.lib.pfattn_last_error().decode())

    def call(self, name, args):
        none = ctypes.c_void_p()
        extra = (none,) if name == "merge" else (none, ctypes.c_size_t(0), none)
        self.check(getattr(self.lib, "pfattn_" + name)(self.handle, ctypes.byref(args), *extra))

    def attention(self, p, name, inputs, outputs):
        args = Attention(struct_size=ctypes.sizeof(Attention))
        args.flags = ALPHA | DIAGONAL | (CAUSAL if p.causal else 0)
        args.alpha, args.diagonal, args.distance = p.alpha, p.diagonal, p.distance or 0
        for field, array in list(inputs.items()) + list(outputs.items()):
            if array is not None:
                setattr(args, field, tensor(array))
        self.call(name, args)
        return outputs


def scrambled(rng, array):
    """The same values in another layout: permuted, reversed or padded axes."""
    order = rng.permutation(array.ndim)
    memory = np.full([array.shape[a] + rng.integers(0, 3) for a in order], 99).astype(array.dtype)
    view = memory[tuple(slice(0, array.shape[a]) for a in order)]
    view = view.transpose(np.argsort(order))
    view = view[tuple(slice(None, None, rng.choice([1, -1])) for _ in array.shape)]
    view[...] = array
    return view


def empty(rng, shape):
    return scrambled(rng, np.full(shape, np.nan))


def random_problem(rng):
    extent = lambda: int(rng.choice([1, 2, 3, 17, 63, 64, 65, 100, 130]))
    B, Hk, group = (int(rng.integers(1, 4)) for _ in range(3))
    H, M, N = Hk * group, extent(), extent()
    D, E = (int(rng.choice([1, 3, 8, 13, 16, 33])) for _ in range(2))
    normal = lambda *shape: scrambled(rng, rng.standard_normal(shape))
    maybe = lambda make, chance=0.6: make() if rng.random() < chance else None
    spread = lambda: [int(rng.choice([1, n])) for n in (B, H, M, N)]
    shapes = {"q": (B, H, M, D), "k": (B, Hk, N, D), "v": (B, Hk, N, E)}
    t = {name: normal(*shape) for name, shape in shapes.items()}
    kwargs = {"causal": bool(rng.random() < 0.5), "alpha": rng.choice([0.3, -0.4, 0, 1])}
    if rng.random() < 0.5:
        kwargs["diagonal"] = int(rng.integers(-N - 2, N + 3))
    if rng.random() < 0.5:
        t["q2"], t["k2"] = normal(B, H, M, D), normal(B, Hk, N, D)
        kwargs["distance"] = int(rng.choice([rng.integers(-M, M + 1), 0, 64, 2**63 - 1, -2**63]))
    if rng.random() < 0.5:
        shape = spread()
        bias = rng.standard_normal(shape)
        bias[rng.random(shape) < 0.1] = -np.inf
        t["bias"] = scrambled(rng, bias)
        t["tbias"] = maybe(lambda: normal(*shape))
    if rng.random() < 0.5:
        t["mask"] = scrambled(rng, (rng.random(spread()) < 0.8).astype(np.uint8))
    for name in ("q", "k", "v", "q2", "k2"):
        if name in t:
            t["t" + name] = maybe(lambda: normal(*t[name].shape))
    p = na.Problem(**kwargs, **t)
    if rng.random() < 0.5:
        poison_unkept_keys(rng, p, t)
        p = na.Problem(**kwargs, **t)
    return p, t


def poison_unkept_keys(rng, p, t):
    unkept = ~p.sum_group(p.keep().any(axis=2).astype(int)).astype(bool)
    for name in ("k", "v", "k2", "tk", "tv", "tk2"):
        if t.get(name) is not None:
            t[name][unkept] = rng.choice([np.nan, np.inf, -np.inf])


def compare(what, seed, got, want, tolerance=1e-12):
    for name, expected in want.items():
        if name not in got:
            continue
        actual = got[name].astype(np.float64)
        same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
        with np.errstate(invalid="ignore"):
            error = np.where(same, 0.0, np.abs(actual - expected))
        scale = max(1.0, np.abs(np.where(np.isfinite(expected), expected, 0)).max(initial=0))
        if not (error <= tolerance * scale).all():
            raise AssertionError(f"seed {seed}: {what} {name} is off by {np.nanmax(error)}")


def some(rng, outputs):
    names = [name for name in outputs if rng.random() < 0.7]
    return {name: outputs[name] for name in names or list(outputs)[:1]}


def check_attention(library, seed):
    rng = np.random.default_rng(seed)
    p, t = random_problem(rng)
    plain = {name: t.get(name) for name in ("q", "k", "v", "bias", "mask", "q2", "k2")}
    tangents = {name: t.get(name) for name in ("tq", "tk", "tv", "tbias", "tq2", "tk2")}
    shape_o, shape_l = (p.B, p.H, p.M, p.E), (p.B, p.H, p.M)

    want = na.jvp(p)
    got = library.attention(p, "forward", plain, some(rng, {"o": empty(rng, shape_o),
                                                            "lse": empty(rng, shape_l)}))
    compare("forward", seed, got, want)
    every = {"o": empty(rng, shape_o), "lse": empty(rng, shape_l),
             "to": empty(rng, shape_o), "tlse": empty(rng, shape_l)}
    got = library.attention(p, "forward", {**plain, **tangents}, every)
    compare("jvp", seed, got, want)

    cotangents = {"dout": scrambled(rng, rng.standard_normal(shape_o))}
    if rng.random() < 0.5:
        cotangents["dlse"] = scrambled(rng, rng.standard_normal(shape_l))
    gradients = na.backward(p, **cotangents)
    outputs = some(rng, {name: empty(rng, x.shape) for name, x in gradients.items()})
    inputs = {**plain, **cotangents, "o": every["o"], "lse": every["lse"]}
    compare("backward", seed, library.attention(p, "backward", inputs, outputs), gradients)

    if rng.random() < 0.7:
        cotangents["tdout"] = scrambled(rng, rng.standard_normal(shape_o))
    second = na.backward_jvp(p, **cotangents)
    outputs = some(rng, {name: empty(rng, x.shape) for name, x in second.items()})
    inputs = {**plain, **tangents, **cotangents, **every}
    compare("backward_jvp", seed, library.attention(p, "backward_jvp", inputs, outputs), second)


def check_merge(library, seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(rng.integers(1, 70)) if n == 2 else int(rng.integers(1, 4)) for n in range(4))
    t = {}
    for part in "01":
        lse = rng.standard_normal(shape[:3]) * 3
        lse[rng.random(shape[:3]) < 0.3] = -np.inf
        t["lse" + part] = scrambled(rng, lse)
        t["o" + part] = scrambled(rng, rng.standard_normal(shape))
        t["tlse" + part] = scrambled(rng, rng.standard_normal(shape[:3]))
        t["to" + part] = scrambled(rng, rng.standard_normal(shape))
    got = {"o": empty(rng, shape), "lse": empty(rng, shape[:3]),
           "to": empty(rng, shape), "tlse": empty(rng, shape[:3])}
    args = Merge(struct_size=ctypes.sizeof(Merge))
    for name, array in {**t, **got}.items():
        setattr(args, name, tensor(array))
    library.call("merge", args)
    compare("merge", seed, got, na.merge(**t))


def main():
    library = Library(sys.argv[1])
    first, count = (int(x) for x in sys.argv[2:4]) if len(sys.argv) > 3 else (0, 60)
    for seed in range(first, first + count):
        check_attention(library, seed)
        check_merge(library, seed)
    print(f"{count} random problems agree with NumPy")


if __name__ == "__main__":
    main()
