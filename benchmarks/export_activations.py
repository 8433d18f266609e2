"""Activations, embeddings and attention of PyTorch beside the common ones: for `exports.py`.

They go into `export_modules.MODULES`.
"""

from __future__ import annotations

import torch
from export_modules import Made, Of, Sizes, module, on_tokens
from torch import Tensor, nn
from torch.nn import functional as fun

# ---------------------------------------------------------------------- activations


@on_tokens
def activations(y: Tensor, _s: Sizes) -> Tensor:
    smooth = fun.mish(y) + fun.celu(y, 0.7) + fun.selu(y) + fun.elu(y, 1.3) + fun.logsigmoid(y)
    return smooth + fun.softplus(y, 2.0, 5.0) + fun.softsign(y) + fun.silu(y) + fun.gelu(y)


@on_tokens
def activations_with_corners(y: Tensor, _s: Sizes) -> Tensor:
    a = fun.hardswish(y) + fun.hardsigmoid(y) + fun.hardtanh(y, -0.4, 0.6) + fun.relu6(y * 3)
    return a + fun.softshrink(y, 0.2) + fun.hardshrink(y, 0.3) + fun.threshold(y, 0.1, -0.2)


@on_tokens
def activations_by_formula(y: Tensor, _s: Sizes) -> Tensor:
    return fun.tanhshrink(y) + fun.softmin(y, -1) + fun.gelu(y, approximate="tanh") + fun.glu(
        torch.cat([y, -y], -1), -1)  # fmt: skip


@module
def slopes(s: Sizes) -> Made:
    layers = {"a": nn.PReLU(s.channels), "b": nn.PReLU()}
    return Of(lambda x, a, b: b(a(x) + 0.1), **layers), (s.pixels(),)


# ------------------------------------------------------------- embeddings and layers


@module
def padded_words(s: Sizes) -> Made:
    e = nn.Embedding(20, s.width, padding_idx=3)
    return Of(lambda x, e: e(x) * (x != 3).unsqueeze(-1), e=e), (s.words(),)


@module
def bilinear_layer(s: Sizes) -> Made:
    return Of(lambda x, y, b: b(x, y), b=nn.Bilinear(s.width, s.width, 3)), (
        s.tokens(), s.tokens(),
    )  # fmt: skip


@module
def tied(s: Sizes) -> Made:
    e = nn.Embedding(20, s.width)
    return Of(lambda x, e: torch.tanh(e(x)) @ e.weight.t(), e=e), (s.words(),)


@on_tokens
def distances(y: Tensor, _s: Sizes) -> Tensor:
    return torch.cdist(y, y[:, :3] + 2.0)


@on_tokens
def similarities(y: Tensor, _s: Sizes) -> Tensor:
    return fun.cosine_similarity(y.unsqueeze(1), y.unsqueeze(2), dim=-1)


# ------------------------------------------------------------------------ attention


def _heads(y: Tensor, s: Sizes) -> Tensor:
    return y.view(y.shape[0], -1, s.heads, s.head).transpose(1, 2)


@on_tokens
def attention_masked(y: Tensor, s: Sizes) -> Tensor:
    hidden = torch.arange(s.length)[None] < torch.arange(1, s.length + 1)[:, None]
    q = _heads(y, s)
    return fun.scaled_dot_product_attention(q, q, q, attn_mask=hidden)


@on_tokens
def attention_biased(y: Tensor, s: Sizes) -> Tensor:
    q, bias = _heads(y, s), y.mean(-1)[:, None, None, :]
    return fun.scaled_dot_product_attention(q, q + 1, q, attn_mask=bias, scale=0.3)


@on_tokens
def attention_grouped(y: Tensor, s: Sizes) -> Tensor:
    q = _heads(y, s)
    k = q[:, : s.heads // 2]
    return fun.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)
