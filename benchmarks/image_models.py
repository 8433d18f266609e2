"""Networks of images, [N, 3, 224, 224] → logits [N, 1000], as their papers have them."""

from __future__ import annotations

import torch
from stock_models import Blocks
from torch import Tensor, nn
from torch.nn import functional

CLASSES = 1000


def normed(narrow: int, wide: int, size: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution that keeps the size of images, and its normalisation."""
    conv = nn.Conv2d(narrow, wide, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(wide))


# ------------------------------------------------------------------------------ ResNet-50


class Bottleneck(nn.Module):
    """Three convolutions beside a shortcut (He et al. 2015, arXiv:1512.03385, figure 5)."""

    def __init__(self, before: int, narrow: int, stride: int) -> None:
        super().__init__()
        wide = 4 * narrow
        self.down, self.middle = normed(before, narrow, 1), normed(narrow, narrow, 3, stride)
        self.up = normed(narrow, wide, 1)
        self.shortcut = normed(before, wide, 1, stride) if before != wide else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.middle(functional.relu(self.down(x))))
        return functional.relu(self.up(y) + self.shortcut(x))


class ResNet50(Blocks):
    """Fifty layers of bottlenecks."""

    def __init__(self) -> None:
        super().__init__()
        parts: list[nn.Module] = [normed(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        before = 64
        for narrow, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for index in range(count):
                parts.append(Bottleneck(before, narrow, 1 if index else stride))
                before = 4 * narrow
        self.layers, self.head = nn.Sequential(*parts), nn.Linear(before, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x).mean((2, 3)))


# ---------------------------------------------------------------------------- MobileNetV3

# Kernel, expanded and resulting channels, squeeze, hard swish, stride (table 1 of the paper).
LARGE = (
    (3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 1, 0, 2),
    (5, 120, 40, 1, 0, 1), (5, 120, 40, 1, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1),
    (3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1),
    (5, 672, 160, 1, 1, 2), (5, 960, 160, 1, 1, 1), (5, 960, 160, 1, 1, 1),
)  # fmt: skip


class Squeeze(nn.Module):
    """Channels weighed by what all places say together."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        narrow = (wide // 4 + 4) // 8 * 8
        self.down, self.up = nn.Conv2d(wide, narrow, 1), nn.Conv2d(narrow, wide, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(functional.relu(self.down(x.mean((2, 3), keepdim=True))))
        return x * functional.hardsigmoid(y)


class Inverted(nn.Module):
    """Widen, look around each channel, narrow."""

    def __init__(
        self, before: int, size: int, wide: int, after: int, squeeze: int, swish: int, stride: int
    ) -> None:
        super().__init__()
        act: type[nn.Module] = nn.Hardswish if swish else nn.ReLU
        parts = [normed(before, wide, 1), act()] if before != wide else []
        parts += [normed(wide, wide, size, stride, wide), act()]
        parts += [Squeeze(wide)] if squeeze else []
        self.layers = nn.Sequential(*parts, normed(wide, after, 1))
        self.adds = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.adds else self.layers(x)


class MobileNetV3(Blocks):
    """The large one (Howard et al. 2019, arXiv:1905.02244), without its dropout."""

    def __init__(self) -> None:
        super().__init__()
        parts: list[nn.Module] = [normed(3, 16, 3, 2), nn.Hardswish()]
        before = 16
        for size, wide, after, squeeze, swish, stride in LARGE:
            parts.append(Inverted(before, size, wide, after, squeeze, swish, stride))
            before = after
        self.layers = nn.Sequential(*parts, normed(before, 960, 1), nn.Hardswish())
        self.head = nn.Sequential(nn.Linear(960, 1280), nn.Hardswish(), nn.Linear(1280, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x).mean((2, 3)))


# --------------------------------------------------------------------------- ConvNeXt tiny


class LastNorm(nn.LayerNorm):
    """Normalises over the channels of [N, C, H, W]."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class NextBlock(nn.Module):
    """A depthwise convolution, then a perceptron of each place."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.around = nn.Conv2d(width, width, 7, 1, 3, groups=width)
        self.places = nn.Sequential(
            nn.LayerNorm(width, 1e-6), nn.Linear(width, 4 * width), nn.GELU(),
            nn.Linear(4 * width, width),
        )  # fmt: skip
        self.scale = nn.Parameter(torch.full((width, 1, 1), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.places(self.around(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return x + self.scale * y


class ConvNeXt(Blocks):
    """The tiny one (Liu et al. 2022, arXiv:2201.03545), without its stochastic depth."""

    def __init__(self) -> None:
        super().__init__()
        parts: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4), LastNorm(96, 1e-6)]
        for width, count in ((96, 3), (192, 3), (384, 9), (768, 3)):
            if width > 96:
                parts += [LastNorm(width // 2, 1e-6), nn.Conv2d(width // 2, width, 2, 2)]
            parts += [NextBlock(width) for _ in range(count)]
        self.layers = nn.Sequential(*parts)
        self.norm, self.head = nn.LayerNorm(768, 1e-6), nn.Linear(768, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.layers(x).mean((2, 3))))
