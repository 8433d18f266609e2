"""Blocks of published architectures on sequences and sets, as their authors write them.

They go into `export_modules.MODULES`, for `exports.py`.
"""

from __future__ import annotations

from typing import Any

import torch
from export_modules import Made, Of, Sizes, module, on_tokens
from torch import Tensor, nn
from torch.nn import functional as fun

# -------------------------------------------------------------------------- experts


@module
def experts(s: Sizes) -> Made:
    """The two best of four experts, all computed (Shazeer et al. 2017)."""
    layers = {"gate": nn.Linear(s.width, 4), "all": nn.Linear(s.width, 4 * s.width)}

    def run(x: Tensor, gate: Any, **rest: Any) -> Tensor:
        best, which = gate(x).topk(2, dim=-1)
        weight = torch.zeros(*x.shape[:-1], 4).scatter(-1, which, best.softmax(-1))
        y = fun.gelu(rest["all"](x)).view(*x.shape[:-1], 4, s.width)
        return (weight.unsqueeze(-1) * y).sum(-2)

    return Of(run, **layers), (s.tokens(),)


@module
def experts_by_index(s: Sizes) -> Made:
    """Each token through the weights of its best expert, which are gathered."""

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(s.width, 4)
            self.weight = nn.Parameter(torch.randn(4, s.width, s.width) / s.width)

        def forward(self, x: Tensor) -> Tensor:
            p = self.gate(x).softmax(-1)
            best, which = p.max(-1)
            y = torch.einsum("bti,btij->btj", x, self.weight[which])
            return torch.cos(y * best.unsqueeze(-1))

    return Experts(), (s.tokens(),)


# ------------------------------------------------------------------ sequences and states


@module
def selective_scan(s: Sizes) -> Made:
    """A state space whose steps depend on the input, unrolled (Gu and Dao 2023)."""
    states = 3
    layers = {
        "step": nn.Linear(s.width, s.width), "b": nn.Linear(s.width, states),
        "c": nn.Linear(s.width, states),
    }  # fmt: skip

    def run(x: Tensor, step: Any, b: Any, c: Any) -> Tensor:
        delta, b, c = fun.softplus(step(x)), b(x), c(x)
        decay = -torch.arange(1, states + 1, dtype=x.dtype)
        state = torch.zeros(x.shape[0], s.width, states)
        found = []
        for t in range(s.length):
            d = delta[:, t].unsqueeze(-1)
            state = torch.exp(d * decay) * state + d * b[:, t].unsqueeze(1) * x[:, t].unsqueeze(-1)
            found.append((state * c[:, t].unsqueeze(1)).sum(-1))
        return torch.stack(found, 1)

    return Of(run, **layers), (s.tokens(),)


@on_tokens
def linear_attention(y: Tensor, _s: Sizes) -> Tensor:
    """Sums over what came before by cumsum (Katharopoulos et al. 2020)."""
    q = fun.elu(y) + 1
    kv = torch.cumsum(q.unsqueeze(-1) * y.unsqueeze(-2), 1)
    norm = torch.cumsum(q, 1)
    top = torch.matmul(q.unsqueeze(-2), kv).squeeze(-2)
    return top / (q * norm).sum(-1, keepdim=True)


@on_tokens
def retention(y: Tensor, s: Sizes) -> Tensor:
    """Products that fade with distance (Sun et al. 2023)."""
    place = torch.arange(s.length, dtype=y.dtype)
    away = place[:, None] - place[None]
    fade = torch.where(away >= 0, 0.9**away, torch.zeros(()))
    return (y @ y.transpose(1, 2) * fade) @ y / s.width


@on_tokens
def padded_rows(y: Tensor, _s: Sizes) -> Tensor:
    """Rows that see nothing: a mask has the least of float32 in all of them."""
    scores = y @ y.transpose(1, 2)
    low = torch.finfo(torch.float32).min
    hidden = torch.triu(torch.ones_like(scores[0]), 1) + (torch.arange(y.shape[1]) < 2)[:, None]
    return torch.softmax(scores + hidden.clamp(max=1) * low, -1) @ y


@on_tokens
def relative_shift(y: Tensor, _s: Sizes) -> Tensor:
    """Scores by distance, moved into place by a pad and a view (Dai et al. 2019)."""
    scores = y @ y.transpose(1, 2)
    b, t, _ = scores.shape
    moved = fun.pad(scores, (1, 0)).view(b, t + 1, t)[:, 1:].reshape(b, t, t)
    return torch.softmax(scores + moved, -1) @ y


@on_tokens
def fourier_mixing(y: Tensor, _s: Sizes) -> Tensor:
    """Tokens mixed by products with cosines (Lee-Thorp et al. 2021)."""
    place = torch.arange(y.shape[1], dtype=y.dtype)
    waves = torch.cos(2 * torch.pi * place[:, None] * place[None] / y.shape[1])
    return torch.einsum("st,btw->bsw", waves, y)


@module
def mixer(s: Sizes) -> Made:
    """Products over tokens, then over features (Tolstikhin et al. 2021)."""
    layers = {
        "n": nn.LayerNorm(s.width), "t": nn.Linear(s.length, s.length),
        "c": nn.Linear(s.width, s.width),
    }  # fmt: skip

    def run(x: Tensor, n: Any, t: Any, c: Any) -> Tensor:
        x = x + fun.gelu(t(n(x).transpose(1, 2))).transpose(1, 2)
        return x + fun.gelu(c(n(x)))

    return Of(run, **layers), (s.tokens(),)


@module
def latents(s: Sizes) -> Made:
    """A few trained vectors that attend to all tokens (Jaegle et al. 2021)."""

    class Latents(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.latents = nn.Parameter(torch.randn(3, s.width))
            self.attention = nn.MultiheadAttention(s.width, s.heads, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            q = self.latents.unsqueeze(0).expand(x.shape[0], -1, -1)
            return torch.cos(self.attention(q, x, x, need_weights=False)[0] * 3)

    return Latents(), (s.tokens(),)


@module
def search_step(s: Sizes) -> Made:
    """A decoder of additive attention, unrolled over cells (Bahdanau et al. 2015)."""
    layers = {
        "cell": nn.GRUCell(2 * s.width, s.width), "key": nn.Linear(s.width, s.width),
        "query": nn.Linear(s.width, s.width, bias=False), "score": nn.Linear(s.width, 1),
    }  # fmt: skip

    def run(x: Tensor, cell: Any, key: Any, query: Any, score: Any) -> Tensor:
        keys, h, found = key(x), x.mean(1), []
        for t in range(3):
            a = score(torch.tanh(keys + query(h).unsqueeze(1))).softmax(1)
            h = cell(torch.cat([(a * x).sum(1), x[:, t]], -1), h)
            found.append(h)
        return torch.stack(found, 1)

    return Of(run, **layers), (s.tokens(),)


@module
def gated_lines(s: Sizes) -> Made:
    """Dilated causal convolutions, tanh times sigmoid, sums of skips (van den Oord et al. 2016)."""
    layers = {
        f"{kind}{d}": nn.Conv1d(s.width, s.width, 2, dilation=d)
        for d in (1, 2, 4) for kind in ("f", "g")
    }  # fmt: skip

    def run(x: Tensor, **convs: Any) -> Tensor:
        y, total = x.transpose(1, 2), 0.0
        for d in (1, 2, 4):
            z = fun.pad(y, (d, 0))
            z = torch.tanh(convs[f"f{d}"](z)) * torch.sigmoid(convs[f"g{d}"](z))
            y, total = y + z, total + z
        return total

    return Of(run, **layers), (s.tokens(),)


# --------------------------------------------------------------------- fields, sets, graphs


@module
def field(s: Sizes) -> Made:
    """Sines of powers of two, sine layers and a sum along rays (Mildenhall et al. 2020)."""
    layers = {"a": nn.Linear(6 * s.width, 16), "b": nn.Linear(16, 4)}

    def run(x: Tensor, a: Any, b: Any) -> Tensor:
        waves = [w(2.0**k * x) for k in range(3) for w in (torch.sin, torch.cos)]
        y = b(torch.sin(3 * a(torch.cat(waves, -1))))
        opaque = 1 - torch.exp(-fun.relu(y[..., 3]) * 0.3)
        seen = torch.cumprod(1 - opaque + 1e-3, -1) / (1 - opaque + 1e-3)
        return ((opaque * seen).unsqueeze(-1) * y[..., :3].sigmoid()).sum(1)

    return Of(run, **layers), (s.tokens(),)


@module
def points(s: Sizes) -> Made:
    """What all points have the most of, beside each of them (Qi et al. 2017)."""
    layers = {"a": nn.Conv1d(s.width, 8, 1), "b": nn.Linear(16, 5), "n": nn.BatchNorm1d(8)}

    def run(x: Tensor, a: Any, b: Any, n: Any) -> Tensor:
        y = fun.relu(n(a(x.transpose(1, 2))))
        most = y.max(-1, keepdim=True)[0].expand_as(y)
        return b(torch.cat([y, most], 1).transpose(1, 2))

    return Of(run, **layers), (s.tokens(),)


@module
def messages(s: Sizes) -> Made:
    """Sums and attention over the edges of a graph by index_add (Veličković et al. 2018)."""
    edges = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2], [1, 2, 3, 4, 5, 0, 3, 5]])
    layers = {"w": nn.Linear(s.width, s.width), "a": nn.Linear(2 * s.width, 1)}

    def run(x: Tensor, w: Any, a: Any) -> Tensor:
        h = w(x).transpose(0, 1)
        start, end = h[edges[0]], h[edges[1]]
        weight = torch.exp(fun.leaky_relu(a(torch.cat([start, end], -1)), 0.2))
        total = torch.zeros(s.length, x.shape[0], 1).index_add(0, edges[1], weight)
        sums = torch.zeros_like(h).index_add(0, edges[1], weight * start)
        return sums / (total + 1e-6)

    return Of(run, **layers), (s.tokens(),)


@module
def neighbours(s: Sizes) -> Made:
    """A normalized adjacency matrix made of distances (Kipf and Welling 2017)."""
    layers = {"w": nn.Linear(s.width, s.width)}

    def run(x: Tensor, w: Any) -> Tensor:
        near = torch.exp(-(torch.cdist(x, x) ** 2) / s.width) + torch.eye(s.length)
        degree = near.sum(-1).rsqrt()
        return torch.relu(degree.unsqueeze(-1) * near * degree.unsqueeze(1) @ w(x))

    return Of(run, **layers), (s.tokens(),)


# ------------------------------------------------------------- codes, flows, weights of weights


@module
def codes(s: Sizes) -> Made:
    """The nearest of some vectors, passed straight through (van den Oord et al. 2017)."""

    class Codes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.book = nn.Linear(s.width, 4), nn.Parameter(torch.randn(7, 4))

        def forward(self, x: Tensor) -> Tensor:
            y = self.w(x)
            far = (y.unsqueeze(-2) - self.book).square().sum(-1)
            near = self.book[far.argmin(-1)]
            return torch.cos(y + (near - y).detach()) + (near - y.detach()).square()

    return Codes(), (s.tokens(),)


@module
def coupling(s: Sizes) -> Made:
    """Halves that scale and shift each other, and the logarithm of what that stretches."""
    half = s.width // 2
    layers = {"a": nn.Linear(half, 2 * half), "b": nn.Linear(half, 2 * half)}

    def run(x: Tensor, a: Any, b: Any) -> Tensor:
        first, second = x.chunk(2, -1)
        scale, shift = a(first).chunk(2, -1)
        second = second * torch.exp(torch.tanh(scale)) + shift
        more, shift = b(second).chunk(2, -1)
        first = first * torch.exp(torch.tanh(more)) + shift
        stretched = torch.tanh(scale).sum(-1) + torch.tanh(more).sum(-1)
        return torch.cat([first, second, stretched.unsqueeze(-1)], -1)

    return Of(run, **layers), (s.tokens(),)


@module
def splines(s: Sizes) -> Made:
    """Sums of bumps around fixed places, weighed by a trained array (Liu et al. 2024)."""

    class Splines(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(s.width, 5, s.width) / s.width)
            self.register_buffer("places", torch.linspace(-2, 2, 5))

        def forward(self, x: Tensor) -> Tensor:
            bumps = torch.exp(-((x.unsqueeze(-1) - self.places) ** 2))
            return torch.cos(torch.einsum("btig,igo->bto", bumps, self.weight) + fun.silu(x))

    return Splines(), (s.tokens(),)


@module
def margins(s: Sizes) -> Made:
    """Angles between unit vectors, widened for one class (Deng et al. 2019)."""
    layers = {"w": nn.Linear(s.width, 5, bias=False)}

    def run(x: Tensor, w: Any) -> Tensor:
        cosine = fun.normalize(x, dim=-1) @ fun.normalize(w.weight, dim=-1).T
        angle = torch.acos(cosine.clamp(-0.99, 0.99))
        wide = fun.one_hot(torch.arange(x.shape[1]) % 5, 5).to(x.dtype)
        return fun.log_softmax(4 * torch.cos(angle + 0.3 * wide), -1)

    return Of(run, **layers), (s.tokens(),)


@module
def fixed_point(s: Sizes) -> Made:
    """One layer that is run again on what it gave (Bai et al. 2019)."""
    layers = {"w": nn.Linear(s.width, s.width), "n": nn.RMSNorm(s.width)}

    def run(x: Tensor, w: Any, n: Any) -> Tensor:
        z = torch.zeros_like(x)
        for _ in range(4):
            z = n(torch.tanh(w(z)) + x)
        return z

    return Of(run, **layers), (s.tokens(),)
