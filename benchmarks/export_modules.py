"""Modules whose exports compute shapes, positions and masks: what `exports.py` exports.

`MODULES` maps a name to a function of `Sizes` that gives a module and its inputs.  Axis 0 of every
input is the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as fun

Made = tuple[nn.Module, tuple[Tensor, ...]]


@dataclass(frozen=True)
class Sizes:
    """Sizes of one draw: batch, length of sequences, heads, features of a head, image, channels."""

    batch: int
    length: int
    heads: int
    head: int
    image: int
    channels: int
    kernel: int

    @property
    def width(self) -> int:
        """Features of a token."""
        return self.heads * self.head

    @classmethod
    def drawn(cls, seed: int) -> Sizes:
        """Small sizes that differ from one another."""
        rng = np.random.default_rng(seed)
        batch, length, heads, head, image, channels = (
            int(rng.choice(few))
            for few in ((2, 3, 5), (6, 8, 10), (2, 4), (4, 8), (8, 12, 16), (4, 6, 8))
        )
        return cls(batch, length, heads, head, image, channels, int(rng.choice((1, 3))))

    def tokens(self) -> Tensor:
        """A batch of sequences."""
        return torch.randn(self.batch, self.length, self.width)

    def pixels(self) -> Tensor:
        """A batch of images."""
        return torch.randn(self.batch, self.channels, self.image, self.image)

    def words(self) -> Tensor:
        """A batch of sentences out of a vocabulary of 20."""
        return torch.randint(0, 20, (self.batch, self.length))


class Of(nn.Module):
    """A function of inputs and of a few layers."""

    def __init__(self, function: Callable[..., Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(layers)
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        """What the function makes of inputs and layers, bent so that no gradient is constant."""
        y = self.function(*inputs, **dict(self.layers.items()))
        return torch.cos(y + y * y)


MODULES: dict[str, Callable[[Sizes], Made]] = {}


def module(make: Callable[[Sizes], Made]) -> Callable[[Sizes], Made]:
    """Put a maker into the table."""
    MODULES[make.__name__] = make
    return make


def on_tokens(function: Callable[..., Tensor]) -> Callable[[Sizes], Made]:
    """Put a function `f(y, s)` of what a linear layer makes of tokens into the table."""

    def make(s: Sizes) -> Made:
        layer = nn.Linear(s.width, s.width)
        return Of(lambda x, layer: function(layer(x), s), layer=layer), (s.tokens(),)

    MODULES[function.__name__] = make
    return make


def on_pixels(function: Callable[..., Tensor]) -> Callable[[Sizes], Made]:
    """Put a function `f(y, s)` of what a convolution makes of images into the table."""

    def make(s: Sizes) -> Made:
        layer = nn.Conv2d(s.channels, s.channels, s.kernel, padding=s.kernel // 2)
        return Of(lambda x, c: function(c(x), s), c=layer), (s.pixels(),)

    MODULES[function.__name__] = make
    return make


# ------------------------------------------------------------------------ attention


@module
def attention(s: Sizes) -> Made:
    a = nn.MultiheadAttention(s.width, s.heads, batch_first=True)
    return Of(lambda x, a: a(x, x, x, need_weights=False)[0], a=a), (s.tokens(),)


@module
def attention_with_weights(s: Sizes) -> Made:
    a = nn.MultiheadAttention(s.width, s.heads)
    return Of(lambda x, a: sum(y.sum(0) for y in a(x, x, x)[:1]), a=a), (s.tokens(),)


@module
def causal_attention(s: Sizes) -> Made:
    a = nn.MultiheadAttention(s.width, s.heads, batch_first=True)

    def run(x: Tensor, a: nn.Module) -> Tensor:
        mask = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), diagonal=1)
        return a(x, x, x, attn_mask=mask, need_weights=False)[0]

    return Of(run, a=a), (s.tokens(),)


@module
def encoder(s: Sizes) -> Made:
    layer = nn.TransformerEncoderLayer(s.width, s.heads, 2 * s.width, 0.0, batch_first=True)
    e = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return Of(lambda x, e: e(x), e=e), (s.tokens(),)


@module
def decoder(s: Sizes) -> Made:
    layer = nn.TransformerDecoderLayer(s.width, s.heads, 2 * s.width, 0.0, batch_first=True)
    d = nn.TransformerDecoder(layer, 1)
    return Of(lambda x, m, d: d(x, m), d=d), (s.tokens(), s.tokens())


@module
def gpt(s: Sizes) -> Made:
    """A GPT of one block, its attention as unbind of a permuted view."""
    layers = {
        "words": nn.Embedding(20, s.width), "places": nn.Embedding(32, s.width),
        "qkv": nn.Linear(s.width, 3 * s.width), "norm": nn.LayerNorm(s.width),
    }  # fmt: skip

    def run(x: Tensor, words: Any, places: Any, qkv: Any, norm: Any) -> Tensor:
        b, t = x.shape
        h = words(x) + places(torch.arange(t))
        q, k, v = qkv(norm(h)).view(b, t, 3, s.heads, s.head).permute(2, 0, 3, 1, 4).unbind(0)
        y = fun.scaled_dot_product_attention(q, k, v, is_causal=True)
        return h + y.transpose(1, 2).reshape(b, t, s.width)

    return Of(run, **layers), (s.words(),)


@module
def places(s: Sizes) -> Made:
    layers = {"words": nn.Embedding(20, s.width), "places": nn.Embedding(32, s.width)}
    out = nn.Linear(s.width, 5)

    def run(x: Tensor, words: Any, places: Any, out: Any) -> Tensor:
        return out(torch.tanh(words(x) + places(torch.arange(x.shape[1]))))[:, -1]

    return Of(run, **layers, out=out), (s.words(),)


@module
def masked_fill(s: Sizes) -> Made:
    def run(x: Tensor, layer: Any) -> Tensor:
        q, t = layer(x), x.shape[1]
        scores = q @ q.transpose(1, 2) / s.width**0.5
        keep = torch.tril(torch.ones(t, t)).view(1, t, t)
        return scores.masked_fill(keep[:, :t, :t] == 0, -1e9).softmax(-1) @ q

    return Of(run, layer=nn.Linear(s.width, s.width)), (s.tokens(),)


@on_tokens
def alibi(y: Tensor, _s: Sizes) -> Tensor:
    places = torch.arange(y.shape[1])
    bias = -(places[None, :] - places[:, None]).abs().to(y.dtype)
    return (y @ y.transpose(1, 2) + 0.1 * bias).softmax(-1) @ y


@on_tokens
def rotary(y: Tensor, s: Sizes) -> Tensor:
    half = s.width // 2
    freq = 1.0 / (100.0 ** (torch.arange(0, half).float() / half))
    angle = torch.outer(torch.arange(y.shape[1]).float(), freq)
    a, b = y.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


@on_tokens
def sinusoids(y: Tensor, s: Sizes) -> Tensor:
    place = torch.arange(y.shape[1]).unsqueeze(1)
    rate = torch.exp(torch.arange(0, s.width, 2) * (-0.5 / s.width))
    table = torch.zeros(y.shape[1], s.width)
    table[:, 0::2] = torch.sin(place * rate)
    table[:, 1::2] = torch.cos(place * rate)
    return y + table


# ------------------------------------------------------------------------ recurrent


@module
def lstm(s: Sizes) -> Made:
    r = nn.LSTM(s.width, s.head, batch_first=True, bidirectional=True)
    return Of(lambda x, r: r(x)[0], r=r), (s.tokens(),)


@module
def gru(s: Sizes) -> Made:
    r = nn.GRU(s.width, s.head, num_layers=2, batch_first=True)
    return Of(lambda x, r: r(x)[0][:, -1], r=r), (s.tokens(),)


@module
def rnn(s: Sizes) -> Made:
    r = nn.RNN(s.width, s.head)
    return Of(lambda x, r: r(x)[1], r=r), (s.tokens(),)


# --------------------------------------------------------------------------- images


class _Block(nn.Module):
    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(into, out, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(out) for _ in range(3))
        self.short = nn.Conv2d(into, out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norms[0](self.one(x)))
        return torch.relu(self.norms[1](self.two(y)) + self.norms[2](self.short(x)))


@module
def resnet(s: Sizes) -> Made:
    c = s.channels
    body = nn.Sequential(_Block(c, c, 1), _Block(c, 2 * c, 2))
    return Of(lambda x, b, f: f(b(x).mean((2, 3))), b=body, f=nn.Linear(2 * c, 5)), (s.pixels(),)


@module
def unet(s: Sizes) -> Made:
    """A U-Net of one level: down, deep, up again, and both together."""
    c = s.channels
    layers = {
        "down": _Block(c, 2 * c, 2), "deep": _Block(2 * c, 2 * c, 1),
        "up": nn.ConvTranspose2d(2 * c, c, 2, 2), "last": nn.Conv2d(2 * c, 2, 1),
    }  # fmt: skip

    def run(x: Tensor, down: Any, deep: Any, up: Any, last: Any) -> Tensor:
        y = up(deep(down(x)))
        high, wide = x.shape[2] - y.shape[2], x.shape[3] - y.shape[3]
        y = fun.pad(y, [wide // 2, wide - wide // 2, high // 2, high - high // 2])
        return last(torch.cat([x, y], 1))

    return Of(run, **layers), (s.pixels(),)


@on_pixels
def bilinear(y: Tensor, _s: Sizes) -> Tensor:
    return fun.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)


@on_pixels
def resized_like(y: Tensor, _s: Sizes) -> Tensor:
    small = fun.max_pool2d(y, 2)
    return y + fun.interpolate(small, size=y.shape[-2:], mode="nearest")


@on_pixels
def pixel_shuffle(y: Tensor, _s: Sizes) -> Tensor:
    return fun.pixel_unshuffle(fun.pixel_shuffle(torch.cat([y] * 2, 1)[:, :4], 2), 4)


@on_pixels
def shifted_windows(y: Tensor, _s: Sizes) -> Tensor:
    b, c, h, w = y.shape
    y = torch.roll(y, (-2, -2), (2, 3)).view(b, c, h // 4, 4, w // 4, 4)
    y = y.permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, c)
    zone = torch.zeros(1, h, w)
    for n, rows in enumerate((slice(0, -4), slice(-4, -2), slice(-2, None))):
        zone[:, rows, :] += n
    zone = zone.view(1, h // 4, 4, w // 4, 4).permute(0, 1, 3, 2, 4).reshape(-1, 16)
    mask = (zone[:, None] - zone[:, :, None]).masked_fill(zone[:, None] != zone[:, :, None], -9.0)
    scores = (y @ y.transpose(1, 2)).view(b, -1, 16, 16) + mask[None, : (h // 4) * (w // 4)]
    return scores.softmax(-1)


@on_pixels
def unfolded(y: Tensor, _s: Sizes) -> Tensor:
    return fun.unfold(y, 3, padding=1, stride=2)


@on_pixels
def padded(y: Tensor, _s: Sizes) -> Tensor:
    return fun.pad(fun.pad(y, (1, 2, 2, 1), mode="reflect"), (0, 1), value=0.5)


@on_pixels
def adaptive_pools(y: Tensor, _s: Sizes) -> Tensor:
    return fun.adaptive_avg_pool2d(y, 2) + fun.adaptive_max_pool2d(y, 1)


@on_pixels
def coordinates(y: Tensor, _s: Sizes) -> Tensor:
    h, w = y.shape[2:]
    rows, columns = torch.meshgrid(
        torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij"
    )
    grid = torch.stack([rows, columns]).expand(y.shape[0], -1, -1, -1)
    return torch.cat([y, grid], 1)


@on_pixels
def group_norm(y: Tensor, _s: Sizes) -> Tensor:
    return fun.instance_norm(fun.group_norm(y, 2))


@on_pixels
def channel_shuffle(y: Tensor, _s: Sizes) -> Tensor:
    b, c, h, w = y.shape
    return y.view(b, 2, c // 2, h, w).transpose(1, 2).contiguous().view(b, -1, h, w)
