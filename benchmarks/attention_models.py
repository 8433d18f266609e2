"""Transformers of text and of images, as their papers have them, without dropout."""

from __future__ import annotations

import torch
from stock_models import Blocks
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    """Every place of [N, T, D] attends to every place, by heads; `bias` is added to the scores."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        n, t, d = x.shape
        q, k, v = (
            p.view(n, t, self.heads, d // self.heads).transpose(1, 2)
            for p in self.qkv(x).split(d, dim=-1)
        )
        if bias is None:
            y = functional.scaled_dot_product_attention(q, k, v)
        else:  # in its parts, as torchvision has it
            y = ((q * q.shape[3] ** -0.5) @ k.transpose(2, 3) + bias).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(n, t, d))


def perceptron(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class Encoder(nn.Module):
    """A layer normalised before each half, or `after` it."""

    def __init__(self, width: int, heads: int, *, after: bool = False) -> None:
        super().__init__()
        self.after, self.attention, self.mlp = after, Attention(width, heads), perceptron(width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        if self.after:
            x = self.norm1(x + self.attention(x))
            return self.norm2(x + self.mlp(x))
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Bert(Blocks):
    """Tokens [N, T] → scores [N, T, words] of masked ones, its words tied (arXiv:1810.04805)."""

    def __init__(self, words: int = 30522, width: int = 768, layers: int = 12) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(Encoder(width, 12, after=True) for _ in range(layers))
        self.dense = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.head = nn.Linear(width, words)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.words(x) + self.places(torch.arange(x.shape[1])))
        for layer in self.layers:
            x = self.through(layer, x)
        return self.head(self.dense(x))


class ViT(Blocks):
    """Images [N, 3, 224, 224] → logits [N, 1000]: patches of 16 and a token (arXiv:2010.11929)."""

    def __init__(self, width: int = 768, layers: int = 12) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, 197, width))
        self.layers = nn.ModuleList(Encoder(width, 12) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        for layer in self.layers:
            x = self.through(layer, x)
        return self.head(self.norm(x)[:, 0])


# ------------------------------------------------------------------------------ Swin tiny

WINDOW = 7


def windows(x: Tensor, side: int) -> Tensor:
    """[N, H, W, D] → [N · windows, 49, D]."""
    n, d, count = x.shape[0], x.shape[3], side // WINDOW
    x = x.view(n, count, WINDOW, count, WINDOW, d).transpose(2, 3)
    return x.reshape(-1, WINDOW * WINDOW, d)


def whole(x: Tensor, side: int) -> Tensor:
    """The images of such windows."""
    count, d = side // WINDOW, x.shape[2]
    x = x.view(-1, count, count, WINDOW, WINDOW, d).transpose(2, 3)
    return x.reshape(-1, side, side, d)


def pairs() -> Tensor:
    """For each pair of places of a window the index of how they lie to each other."""
    at = torch.stack(torch.meshgrid(torch.arange(WINDOW), torch.arange(WINDOW), indexing="ij"))
    apart = (at.flatten(1)[:, :, None] - at.flatten(1)[:, None]) + WINDOW - 1
    return apart[0] * (2 * WINDOW - 1) + apart[1]


class SwinBlock(nn.Module):
    """Attention within windows, moved by half of one where `shift` says so."""

    def __init__(self, width: int, heads: int, side: int, *, shift: bool) -> None:
        super().__init__()
        self.side, self.shift = side, WINDOW // 2 if shift and side > WINDOW else 0
        self.attention, self.mlp = Attention(width, heads), perceptron(width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.table = nn.Parameter(0.02 * torch.randn((2 * WINDOW - 1) ** 2, heads))
        self.register_buffer("pairs", pairs().flatten(), persistent=False)
        self.register_buffer("apart", self.separate(), persistent=False)

    def separate(self) -> Tensor:
        """[windows, 1, 49, 49]: which places of a moved window are of different parts."""
        part = torch.zeros(self.side)
        if self.shift:
            part[-WINDOW : -self.shift], part[-self.shift :] = 1, 2
        image = (3 * part[:, None] + part[None])[None, :, :, None]
        of = windows(image, self.side)[:, :, 0]
        return torch.where(of[:, :, None] == of[:, None], 0.0, -100.0)[:, None]

    def forward(self, x: Tensor) -> Tensor:
        places = WINDOW * WINDOW
        bias = self.table[self.pairs].view(places, places, -1).permute(2, 0, 1)[None]
        y = self.norm1(x)
        if self.shift:
            y = y.roll((-self.shift, -self.shift), (1, 2))
            bias = bias + self.apart.repeat(x.shape[0], 1, 1, 1)
        y = whole(self.attention(windows(y, self.side), bias), self.side)
        x = x + (y.roll((self.shift, self.shift), (1, 2)) if self.shift else y)
        return x + self.mlp(self.norm2(x))


class Merge(nn.Module):
    """Four neighbours become one place of twice the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.down = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        corners = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return self.down(self.norm(torch.cat(corners, -1)))


class Swin(Blocks):
    """The tiny one (Liu et al. 2021, arXiv:2103.14030)."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.first = nn.Conv2d(3, 96, 4, 4), nn.LayerNorm(96)
        parts: list[nn.Module] = []
        width, side = 96, 56
        for count in (2, 2, 6, 2):
            if parts:
                parts.append(Merge(width))
                width, side = 2 * width, side // 2
            parts += [SwinBlock(width, width // 32, side, shift=i % 2 == 1) for i in range(count)]
        self.layers = nn.Sequential(*parts)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(self.patches(x).permute(0, 2, 3, 1))
        return self.head(self.norm(self.layers(x)).mean((1, 2)))
