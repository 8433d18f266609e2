"""The modules of `job_kinds`, as one writes them in PyTorch; a seed draws what they begin with."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


def _seeded(seed: int) -> None:
    torch.manual_seed(seed)


class Classifier(nn.Module):
    """Two convolutions with norms, and a head: `x` [N, 1, 8, 8] → 10 classes."""

    def __init__(self, seed: int, wide: int = 32) -> None:
        _seeded(seed)
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, wide // 2, 3, padding=1), nn.BatchNorm2d(wide // 2), nn.ReLU(),
            nn.Conv2d(wide // 2, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.ReLU(),
            nn.MaxPool2d(2), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(16 * wide, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class Table(nn.Sequential):
    """A perceptron: `x` [N, 30] → 2 classes."""

    def __init__(self, seed: int) -> None:
        _seeded(seed)
        super().__init__(
            nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)
        )


class Block(nn.Module):
    """A residual block of attention and a perceptron."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.heads, self.causal = heads, causal

    def forward(self, x: Tensor) -> Tensor:
        size, length, width = x.shape
        parts = self.qkv(self.before(x)).view(size, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(y.transpose(1, 2).reshape(size, length, width))
        return x + self.mlp(self.between(x))


class Letters(nn.Module):
    """A decoder over bytes: `tokens` [N, 64] → `logits` [N, 64, 128]."""

    def __init__(self, seed: int, width: int = 64) -> None:
        _seeded(seed)
        super().__init__()
        self.tokens, self.places = nn.Embedding(128, width), nn.Embedding(64, width)
        self.blocks = nn.Sequential(*(Block(width, 4, causal=True) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 128, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


class LowRank(nn.Module):
    """A linear layer that stays, with an adapter beside it."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        bound = 1 / math.sqrt(base.in_features)
        self.a = nn.Parameter(torch.empty(rank, base.in_features).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + functional.linear(functional.linear(x, self.a), self.b)


class Adapted(nn.Module):
    """An encoder whose weights stay: `tokens` [N, 24] → 4 classes."""

    def __init__(self, seed: int, width: int = 64) -> None:
        _seeded(seed)
        super().__init__()
        self.tokens, self.places = nn.Embedding(40, width), nn.Embedding(24, width)
        self.blocks = nn.Sequential(*(Block(width, 4, causal=False) for _ in range(2)))
        self.head = nn.Linear(width, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.blocks(self.tokens(tokens) + self.places.weight)
        return self.head(x.amax(1))

    def trained(self) -> Adapted:
        """What eager training adapts: low ranks beside the products, and the head."""
        self.requires_grad_(False)
        self.head.requires_grad_(True)
        for block in self.blocks:
            block.qkv = LowRank(block.qkv, 8)
            block.mlp[0], block.mlp[2] = LowRank(block.mlp[0], 8), LowRank(block.mlp[2], 8)
        return self


class Reversed(nn.Module):
    """Two GRUs with attention between them: `source` and `said` [N, 10] → 12 tokens."""

    def __init__(self, seed: int, width: int = 64) -> None:
        _seeded(seed)
        super().__init__()
        self.embed = nn.Embedding(12, width)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(2 * width, 12)

    def forward(self, source: Tensor, said: Tensor) -> Tensor:
        kept, state = self.encoder(self.embed(source))
        x, _ = self.decoder(self.embed(said), state)
        weights = torch.softmax(x @ kept.transpose(1, 2) / math.sqrt(x.shape[-1]), -1)
        return self.head(torch.cat([x, weights @ kept], -1))


class UNet(nn.Module):
    """Down twice and up again: `x` [N, 1, 32, 32] → `logits` [N, 3, 32, 32]."""

    def __init__(self, seed: int, wide: int = 16) -> None:
        _seeded(seed)
        super().__init__()
        self.first, self.second = _double(1, wide), _double(wide, 2 * wide)
        self.deep = _double(2 * wide, 4 * wide)
        self.up2 = nn.ConvTranspose2d(4 * wide, 2 * wide, 2, 2)
        self.up1 = nn.ConvTranspose2d(2 * wide, wide, 2, 2)
        self.after2, self.after1 = _double(4 * wide, 2 * wide), _double(2 * wide, wide)
        self.head = nn.Conv2d(wide, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        second = self.second(functional.max_pool2d(first, 2))
        x = self.up2(self.deep(functional.max_pool2d(second, 2)))
        x = self.up1(self.after2(torch.cat([x, second], 1)))
        return self.head(self.after1(torch.cat([x, first], 1)))


def _double(narrow: int, wide: int) -> nn.Sequential:
    layers = (nn.Conv2d(narrow, wide, 3, padding=1), nn.ReLU())
    return nn.Sequential(*layers, nn.Conv2d(wide, wide, 3, padding=1), nn.ReLU())


class Detector(nn.Module):
    """A trunk with two heads: `x` [N, 1, 32, 32] → `kind` [N, 2] and `place` [N, 4]."""

    def __init__(self, seed: int, wide: int = 16) -> None:
        _seeded(seed)
        super().__init__()
        sizes = (1, wide, 2 * wide, 4 * wide)
        layers: list[nn.Module] = []
        for narrow, broad in pairwise(sizes):
            layers += [nn.Conv2d(narrow, broad, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        self.trunk = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * wide, 64), nn.ReLU())
        self.kind, self.place = nn.Linear(64, 2), nn.Linear(64, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        found = self.trunk(x)
        return self.kind(found), self.place(found)


class Twins(nn.Module):
    """One encoder for two views: `a` and `b` [N, 1, 8, 8] → embeddings [N, 32]."""

    def __init__(self, seed: int) -> None:
        _seeded(seed)
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 32),
        )  # fmt: skip

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return self.encoder(a), self.encoder(b)


class Distilled(nn.Module):
    """A teacher that stays and a student: `x` [N, 1, 8, 8] → 10 classes each."""

    def __init__(self, seed: int) -> None:
        _seeded(seed)
        super().__init__()
        self.student = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(128, 10),
        )  # fmt: skip
        self.teacher = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 10),
        )  # fmt: skip

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.student(x), self.teacher(x)

    def trained(self) -> Distilled:
        """What eager training trains: the student."""
        self.teacher.requires_grad_(False)
        return self
