"""ResNet-18, a U-Net and a GPT, as PyTorch has them and as its exporter writes them raw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

Arrays = dict[str, np.ndarray[Any, Any]]


class Blocks(nn.Module):
    """Runs a block, or runs it again in backward where `again` is set (torch's checkpoint)."""

    again = False

    def through(self, block: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        return checkpoint(block, *inputs, use_reentrant=False) if self.again else block(*inputs)


# ------------------------------------------------------------------------------ ResNet-18


class BasicBlock(nn.Module):
    """Two convolutions beside a shortcut (He et al. 2015, arXiv:1512.03385)."""

    def __init__(self, narrow: int, wide: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(narrow, wide, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(wide)
        self.conv2 = nn.Conv2d(wide, wide, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(wide)
        self.shortcut = nn.Sequential()
        if stride != 1 or narrow != wide:
            conv = nn.Conv2d(narrow, wide, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(wide))

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet18(Blocks):
    """Images [N, 3, H, W] → logits [N, 1000]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1),
                  (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]  # fmt: skip
        self.blocks = nn.ModuleList(BasicBlock(*each) for each in widths)
        self.fc = nn.Linear(512, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for block in self.blocks:
            x = self.through(block, x)
        return self.fc(x.mean((2, 3)))


# ---------------------------------------------------------------------------------- U-Net


def twice(narrow: int, wide: int) -> nn.Sequential:
    """Two convolutions, each normalised and rectified."""
    parts: list[nn.Module] = []
    for channels in (narrow, wide):
        parts += [nn.Conv2d(channels, wide, 3, 1, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU()]
    return nn.Sequential(*parts)


class UNet(Blocks):
    """Images [N, 3, H, W] → scores [N, 2, H, W] (Ronneberger et al. 2015, arXiv:1505.04597)."""

    def __init__(self, width: int = 32, depth: int = 4) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.down = nn.ModuleList(twice(*p) for p in zip([3, *widths], widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths[:-1]))
        self.join = nn.ModuleList(twice(2 * w, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for level, block in enumerate(self.down):
            x = self.through(block, functional.max_pool2d(x, 2) if level else x)
            kept.append(x)
        for up, join, beside in zip(self.up, self.join, reversed(kept[:-1]), strict=True):
            x = self.through(join, torch.cat([beside, up(x)], 1))
        return self.head(x)


# ------------------------------------------------------------------------------------ GPT


class Layer(nn.Module):
    """Causal attention and a perceptron, normalised before each."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        parts = self.qkv(self.norm1(x)).split(d, dim=-1)
        q, k, v = (p.view(b, t, self.heads, d // self.heads).transpose(1, 2) for p in parts)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norm2(x))


class GPT(Blocks):
    """Tokens [N, T] → logits [N, T, 512]."""

    def __init__(self, layers: int = 6, width: int = 256, heads: int = 8, words: int = 512) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(256, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.words(x) + self.places(torch.arange(x.shape[1]))
        for layer in self.layers:
            x = self.through(layer, x)
        return self.head(self.norm(x))


# -------------------------------------------------------------------------------- together


@dataclass(frozen=True)
class Subject:
    """A network, what it is fed, and the axis of its output that classes lie along."""

    make: Callable[[], Blocks]
    shape: tuple[int, ...]
    classes: int
    axis: int
    tokens: bool = False

    def input(self) -> np.ndarray[Any, Any]:
        rng = np.random.default_rng(0)
        if self.tokens:
            return rng.integers(0, self.classes, self.shape)
        return rng.standard_normal(self.shape, np.float32)

    def labels(self) -> np.ndarray[Any, Any]:
        """Classes of every place of the output."""
        places = (self.shape[0], *self.shape[2:]) if self.axis == 1 else self.shape
        if self.axis == -1 and not self.tokens:
            places = self.shape[:1]
        return np.random.default_rng(1).integers(0, self.classes, places)

    def network(self) -> Blocks:
        torch.manual_seed(0)
        return self.make().train()

    def loss(self, network: nn.Module, x: Tensor, labels: Tensor) -> Tensor:
        y = network(x).movedim(self.axis, -1)
        return functional.cross_entropy(y.reshape(-1, self.classes), labels.reshape(-1))


SUBJECTS = {
    "ResNet-18": Subject(ResNet18, (8, 3, 224, 224), 1000, -1),
    "U-Net": Subject(UNet, (2, 3, 256, 256), 2, 1),
    "GPT": Subject(GPT, (8, 256), 512, -1, tokens=True),
}


def export(subject: Subject, path: Path) -> None:
    """Write a network as the dynamo exporter makes it, not optimised."""
    x = torch.from_numpy(subject.input())
    torch.onnx.export(
        subject.network(), (x,), str(path), input_names=["x"], output_names=["y"],
        dynamo=True, optimize=False, external_data=False, verbose=False,
    )  # fmt: skip
