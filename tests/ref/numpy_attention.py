# SPDX-License-Identifier: Apache-2.0
"""The mathematics of pfattn written once more, from its formulas, with full matrices in NumPy.

Everything is float64. Tensors are [B, H, sequence, channel]; lse, tlse and dlse are [B, H, M].
This module shares nothing with the library; tests compare the two.
"""
import numpy as np


class Problem:
    """One attention problem: inputs by name, each an array or None.

    q, k, v, bias, mask, q2, k2 and the tangents tq, tk, tv, tbias, tq2, tk2. The pair q2, k2 is used
    where i + diagonal - j >= distance. diagonal=None means N - M, alpha=None means 1/sqrt(D).
    """

    NAMES = ("q", "k", "v", "bias", "mask", "q2", "k2", "tq", "tk", "tv", "tbias", "tq2", "tk2")

    def __init__(self, causal=False, diagonal=None, alpha=None, distance=None, **tensors):
        for name in self.NAMES:
            value = tensors.pop(name, None)
            if value is not None and name != "mask":
                value = np.asarray(value, dtype=np.float64)
            setattr(self, name, value)
        if tensors:
            raise TypeError("unknown tensors: " + ", ".join(tensors))
        self.B, self.H, self.M, self.D = self.q.shape
        self.Hk, self.N = self.k.shape[1:3]
        self.E = self.v.shape[3]
        self.causal = causal
        self.diagonal = self.N - self.M if diagonal is None else int(diagonal)
        self.distance = None if distance is None else int(distance)
        if alpha is None:
            alpha = 1 / np.sqrt(self.D) if self.D else 0.0
        self.alpha = float(alpha)

    def per_query_head(self, x):
        """Repeat each key/value head for the query heads that read it."""
        return np.repeat(x, self.H // self.Hk, axis=1)

    def sum_group(self, x):
        """The transpose of per_query_head: [B, H, ...] summed to [B, Hk, ...]."""
        return x.reshape((self.B, self.Hk, self.H // self.Hk) + x.shape[2:]).sum(axis=2)

    def positions(self):
        """i - j as Python integers where the diagonal or the distance could overflow."""
        i = np.arange(self.M, dtype=object)[:, None]
        j = np.arange(self.N, dtype=object)[None, :]
        return (i - j + self.diagonal).reshape(self.M, self.N)

    def keep(self):
        kept = np.ones((self.B, self.H, self.M, self.N), dtype=bool)
        if self.mask is not None:
            kept &= np.asarray(self.mask) != 0
        if self.bias is not None:
            kept &= self.bias != -np.inf
        if self.causal:
            kept &= (self.positions() >= 0).astype(bool)
        return kept

    def far(self):
        """Where the second pair is used."""
        if self.q2 is None:
            return np.zeros((self.M, self.N), dtype=bool)
        return (self.positions() >= self.distance).astype(bool)


def _zero_or(x, like):
    return np.zeros_like(like) if x is None else np.asarray(x, dtype=np.float64)


def _dots(a, b):
    return np.einsum("bhid,bhjd->bhij", a, b)


def _clean(x, kept_keys):
    """Zero what stands at keys that nobody keeps: it may be NaN, and is no part of the problem."""
    return np.where(kept_keys[..., None], x, 0.0)


class _State:
    """All intermediate matrices of a problem: S, P, and dt, tP where there are tangents."""

    def __init__(self, p):
        self.kept = p.keep()
        self.far = p.far()
        used = self.kept.any(axis=2)
        self.q, self.tq = p.q, _zero_or(p.tq, p.q)
        self.k = _clean(p.per_query_head(p.k), used)
        self.v = _clean(p.per_query_head(p.v), used)
        self.tk = _clean(p.per_query_head(_zero_or(p.tk, p.k)), used)
        self.tv = _clean(p.per_query_head(_zero_or(p.tv, p.v)), used)
        dots = _dots(self.q, self.k)
        tdots = _dots(self.tq, self.k) + _dots(self.q, self.tk)
        if p.q2 is not None:
            self.q2, self.tq2 = p.q2, _zero_or(p.tq2, p.q2)
            self.k2 = _clean(p.per_query_head(p.k2), used)
            self.tk2 = _clean(p.per_query_head(_zero_or(p.tk2, p.k2)), used)
            dots = np.where(self.far, _dots(self.q2, self.k2), dots)
            tdots = np.where(self.far, _dots(self.tq2, self.k2) + _dots(self.q2, self.tk2), tdots)
        score = p.alpha * dots
        dt = p.alpha * tdots
        if p.bias is not None:
            score = score + p.bias
        if p.tbias is not None:
            dt = dt + p.tbias
        self.score = np.where(self.kept, score, -np.inf)
        self.dt = np.where(self.kept, dt, 0.0)
        self.lse = self._log_sum_exp()
        with np.errstate(invalid="ignore"):
            exponent = np.where(self.kept, self.score - self.lse[..., None], -np.inf)
        self.P = np.exp(exponent)

    def _log_sum_exp(self):
        if self.score.shape[3] == 0:
            return np.full(self.score.shape[:3], -np.inf)
        largest = self.score.max(axis=3)
        shift = np.where(largest == -np.inf, 0.0, largest)
        with np.errstate(divide="ignore"):
            return np.log(np.exp(self.score - shift[..., None]).sum(axis=3)) + shift


def forward(p):
    """o, lse."""
    s = _State(p)
    return {"o": np.einsum("bhij,bhje->bhie", s.P, s.v), "lse": s.lse}


def jvp(p):
    """o, lse, to, tlse."""
    s = _State(p)
    o = np.einsum("bhij,bhje->bhie", s.P, s.v)
    mu = (s.P * s.dt).sum(axis=3)
    to = (np.einsum("bhij,bhje->bhie", s.P * s.dt, s.v) - mu[..., None] * o
          + np.einsum("bhij,bhje->bhie", s.P, s.tv))
    return {"o": o, "lse": s.lse, "to": to, "tlse": mu}


def _sum_to(shape, x):
    """Sum over the dimensions in which a bias of this shape is broadcast."""
    for axis in range(4):
        if shape[axis] == 1:
            x = x.sum(axis=axis, keepdims=True)
    return x


def backward(p, dout, dlse=None):
    """dq, dk, dv and, where the problem has them, dbias, dq2, dk2."""
    s = _State(p)
    o = np.einsum("bhij,bhje->bhie", s.P, s.v)
    dlse = _zero_or(dlse, s.lse)
    delta = (dout * o).sum(axis=3)
    dP = _dots(dout, s.v)
    dS = s.P * (dP - delta[..., None] + dlse[..., None])
    return _gradients(p, s, dS, s.P, dout)


def _gradients(p, s, dS, P, dout):
    near = np.where(s.far, 0.0, dS)
    out = {
        "dq": p.alpha * np.einsum("bhij,bhjd->bhid", near, s.k),
        "dk": p.sum_group(p.alpha * np.einsum("bhij,bhid->bhjd", near, s.q)),
        "dv": p.sum_group(np.einsum("bhij,bhie->bhje", P, dout)),
    }
    if p.bias is not None:
        out["dbias"] = _sum_to(p.bias.shape, dS)
    if p.q2 is not None:
        far = np.where(s.far, dS, 0.0)
        out["dq2"] = p.alpha * np.einsum("bhij,bhjd->bhid", far, s.k2)
        out["dk2"] = p.sum_group(p.alpha * np.einsum("bhij,bhid->bhjd", far, s.q2))
    return out


def backward_jvp(p, dout, dlse=None, tdout=None):
    """The tangent of backward along the problem's tangents and tdout, at fixed dlse: tdq, tdk, ..."""
    s = _State(p)
    results = jvp(p)
    o, to, mu = results["o"], results["to"], results["tlse"]
    tdout = _zero_or(tdout, dout)
    dlse = _zero_or(dlse, s.lse)
    tP = s.P * (s.dt - mu[..., None])
    delta = (dout * o).sum(axis=3)
    tdelta = (tdout * o + dout * to).sum(axis=3)
    dP = _dots(dout, s.v)
    tdP = _dots(tdout, s.v) + _dots(dout, s.tv)
    centred = dP - delta[..., None] + dlse[..., None]
    dS = s.P * centred
    tdS = tP * centred + s.P * (tdP - tdelta[..., None])
    near, tnear = np.where(s.far, 0.0, dS), np.where(s.far, 0.0, tdS)
    out = {
        "tdq": p.alpha * (np.einsum("bhij,bhjd->bhid", tnear, s.k)
                          + np.einsum("bhij,bhjd->bhid", near, s.tk)),
        "tdk": p.sum_group(p.alpha * (np.einsum("bhij,bhid->bhjd", tnear, s.q)
                                      + np.einsum("bhij,bhid->bhjd", near, s.tq))),
        "tdv": p.sum_group(np.einsum("bhij,bhie->bhje", tP, dout)
                           + np.einsum("bhij,bhie->bhje", s.P, tdout)),
    }
    if p.bias is not None:
        out["tdbias"] = _sum_to(p.bias.shape, tdS)
    if p.q2 is not None:
        far, tfar = np.where(s.far, dS, 0.0), np.where(s.far, tdS, 0.0)
        out["tdq2"] = p.alpha * (np.einsum("bhij,bhjd->bhid", tfar, s.k2)
                                 + np.einsum("bhij,bhjd->bhid", far, s.tk2))
        out["tdk2"] = p.sum_group(p.alpha * (np.einsum("bhij,bhid->bhjd", tfar, s.q2)
                                             + np.einsum("bhij,bhid->bhjd", far, s.tq2)))
    return out


def merge(o0, lse0, o1, lse1, to0=None, tlse0=None, to1=None, tlse1=None):
    """o, lse and, with tangents, to, tlse of the union of two disjoint sets of keys."""
    parts_o, parts_lse = np.stack([o0, o1]), np.stack([lse0, lse1])
    largest = parts_lse.max(axis=0)
    shift = np.where(largest == -np.inf, 0.0, largest)
    with np.errstate(divide="ignore"):
        lse = np.log(np.exp(parts_lse - shift).sum(axis=0)) + shift
    with np.errstate(invalid="ignore"):
        weight = np.where(parts_lse == -np.inf, 0.0, np.exp(parts_lse - lse))
    parts_o = np.where(weight[..., None] == 0, 0.0, parts_o)
    out = {"o": (weight[..., None] * parts_o).sum(axis=0), "lse": lse}
    if to0 is not None:
        parts_to = np.where(weight[..., None] == 0, 0.0, np.stack([to0, to1]))
        parts_tlse = np.where(weight == 0, 0.0, np.stack([tlse0, tlse1]))
        tlse = (weight * parts_tlse).sum(axis=0)
        change = (parts_tlse - tlse)[..., None]
        out["to"] = (weight[..., None] * (parts_to + change * parts_o)).sum(axis=0)
        out["tlse"] = tlse
    return out
