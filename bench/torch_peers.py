# SPDX-License-Identifier: Apache-2.0
"""The peers, all through PyTorch, and attention in float32 the slow way to judge values by.

Each function returns the call to time; it raises where the peer refuses the problem.
"""
from collections.abc import Callable

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION}
NAMES = (*BACKENDS, "flex")
Call = Callable[[], object]


def forward(peer: str, q, k, v, *, causal: bool = False, bias=None) -> Call:
    """O. `bias` is what attn_mask takes."""
    if peer == "flex":
        assert not causal
        compiled = compile_flex()
        return lambda: compiled(q, k, v, bias)

    def call():
        with sdpa_kernel(BACKENDS[peer]):
            return sdpa(q, k, v, attn_mask=bias, is_causal=causal)
    return call


def backward(peer: str, q, k, v, dout, *, causal: bool = False, bias=None, dbias: bool = False,
             group: int = 1) -> Call:
    """dq, dk, dv and with `dbias` that of the bias; `group` query heads share a head of k and v."""
    q, k, v = wanted = [x.detach().requires_grad_() for x in (q, k, v)]
    if dbias:
        bias = bias.detach().requires_grad_()
        wanted = [*wanted, bias]
    if group > 1:
        k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    out = forward(peer, q, k, v, causal=causal, bias=bias)()
    return lambda: torch.autograd.grad(out, wanted, dout, retain_graph=True)


def compile_flex() -> Callable:
    """FlexAttention with a bias of [B,H,N,N], compiled anew for the shapes of its first call."""
    import torch._functorch.config
    from torch.nn.attention.flex_attention import flex_attention

    torch._dynamo.reset()
    torch._functorch.config.donated_buffer = False  # backward is called many times on one graph

    def attention(q, k, v, bias):
        def add_bias(score, b, h, i, j):
            return score + bias[b, h, i, j]
        return flex_attention(q, k, v, score_mod=add_bias)
    return torch.compile(attention, dynamic=False)


def dense(q, k, v, bias=None, mask=None, q2=None, k2=None, *, distance: int = 0, causal: bool = False):
    """O in float32 of [.., M, D] queries, the last M of as many as there are keys; bias and mask are [.., M, N]."""
    m, n, scale = q.shape[-2], k.shape[-2], q.shape[-1] ** -0.5
    position = torch.arange(n, device=q.device)
    apart = position[n - m:, None] - position[None]
    s = q.float() @ k.float().transpose(-1, -2) * scale
    if q2 is not None:
        s = torch.where(apart >= distance, q2.float() @ k2.float().transpose(-1, -2) * scale, s)
    if bias is not None:
        s = s + bias.float()
    if causal:
        s = s.masked_fill(apart < 0, float("-inf"))
    if mask is not None:
        s = s.masked_fill(mask == 0, float("-inf"))
    return s.softmax(-1) @ v.float()


ROWS = 1024  # of the last head are compared with `dense`, the last ones
OF_QUERIES = ("q", "q2", "bias", "mask")  # their third dimension is that of the queries


def last_head(tensors: dict, rows: int = ROWS) -> dict:
    """Of the last batch and head, in float32: the last rows of queries, all keys."""
    return {name: x[-1, -1, -min(rows, x.shape[2]):].float() if name in OF_QUERIES else x[-1, -1].float()
            for name, x in tensors.items()}


def dense_forward(tensors: dict, **options) -> torch.Tensor:
    """O of the last rows of the last head; `tensors` are those of the call."""
    return dense(**last_head(tensors), **options)


def dense_jvp(tensors: dict, tangents: dict, **options) -> tuple[torch.Tensor, torch.Tensor]:
    """O and its tangent, likewise; the tangents are named as what they are tangents of."""
    primal, tangent = last_head(tensors), last_head(tangents)

    def f(*x):
        return dense(**dict(zip(primal, x)), **options)
    return torch.func.jvp(f, tuple(primal.values()), tuple(tangent[name] for name in primal))


def dense_backward(tensors: dict, dout: torch.Tensor, **options) -> dict[str, torch.Tensor]:
    """The gradients of the last head, by the names of the inputs."""
    leaves = {name: x.requires_grad_() for name, x in last_head(tensors, rows=dout.shape[2]).items()}
    out = dense(**leaves, **options)
    return dict(zip(leaves, torch.autograd.grad(out, list(leaves.values()), dout[-1, -1].float())))
