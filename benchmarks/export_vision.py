"""Blocks of published architectures on images, as their authors write them.

They go into `export_modules.MODULES`, for `exports.py`.
"""

from __future__ import annotations

from typing import Any

import torch
from export_modules import Made, Of, Sizes, module, on_pixels
from torch import Tensor, nn
from torch.nn import functional as fun

# --------------------------------------------------------------------------- images


@module
def convnext(s: Sizes) -> Made:
    """A depthwise 7 × 7, a norm over channels last, and a scale of the branch (Liu et al. 2022)."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            c = s.channels
            self.depth, self.norm = nn.Conv2d(c, c, 7, padding=3, groups=c), nn.LayerNorm(c)
            self.wide, self.narrow = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)
            self.gamma = nn.Parameter(torch.full((c,), 0.5))

        def forward(self, x: Tensor) -> Tensor:
            y = self.norm(self.depth(x).permute(0, 2, 3, 1))
            y = self.gamma * self.narrow(fun.gelu(self.wide(y)))
            return torch.cos(x + y.permute(0, 3, 1, 2))

    return Block(), (s.pixels(),)


@module
def squeezed_and_scaled(s: Sizes) -> Made:
    """A wide depthwise block whose channels are weighed by their means (Tan and Le 2019)."""
    c = s.channels
    layers = {
        "wide": nn.Conv2d(c, 2 * c, 1), "depth": nn.Conv2d(2 * c, 2 * c, 5, 2, 2, groups=2 * c),
        "less": nn.Conv2d(2 * c, 2, 1), "more": nn.Conv2d(2, 2 * c, 1),
        "narrow": nn.Conv2d(2 * c, c, 1), "norm": nn.BatchNorm2d(2 * c),
    }  # fmt: skip

    def run(x: Tensor, **m: Any) -> Tensor:
        y = fun.silu(m["depth"](fun.silu(m["norm"](m["wide"](x)))))
        a = m["more"](fun.silu(m["less"](fun.adaptive_avg_pool2d(y, 1)))).sigmoid()
        return m["narrow"](y * a)

    return Of(run, **layers), (s.pixels(),)


@module
def dense_block(s: Sizes) -> Made:
    """Each convolution reads all before it (Huang et al. 2017)."""
    c = s.channels
    layers = {f"c{i}": nn.Conv2d(c + 3 * i, 3, 3, padding=1) for i in range(3)}

    def run(x: Tensor, **convs: Any) -> Tensor:
        found = [x]
        for conv in convs.values():
            found.append(fun.relu(conv(torch.cat(found, 1))))
        return fun.avg_pool2d(torch.cat(found, 1), 2)

    return Of(run, **layers), (s.pixels(),)


@module
def pyramid(s: Sizes) -> Made:
    """Rates of dilation and the mean of all, resized to each other (Chen et al. 2017)."""
    c = s.channels
    layers: dict[str, nn.Module] = {
        f"r{r}": nn.Conv2d(c, c, 3, padding=r, dilation=r) for r in (1, 2, 4)
    }
    layers |= {"mean": nn.Conv2d(c, c, 1), "last": nn.Conv2d(4 * c, c, 1)}

    def run(x: Tensor, mean: Any, last: Any, **rates: Any) -> Tensor:
        size = x.shape[-2:]
        pooled = mean(x.mean((2, 3), keepdim=True))
        pooled = fun.interpolate(pooled, size, mode="bilinear", align_corners=False)
        return last(torch.cat([*(fun.relu(r(x)) for r in rates.values()), pooled], 1))

    return Of(run, **layers), (s.pixels(),)


@module
def vision(s: Sizes) -> Made:
    """Patches, a class token and places, of which the first is read (Dosovitskiy et al. 2021)."""

    class Vision(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch = nn.Conv2d(s.channels, s.width, 4, stride=4)
            self.token = nn.Parameter(torch.randn(1, 1, s.width))
            self.places = nn.Parameter(torch.randn(1, (s.image // 4) ** 2 + 1, s.width))
            self.block = nn.TransformerEncoderLayer(
                s.width, s.heads, 2 * s.width, 0.0, "gelu", batch_first=True, norm_first=True
            )

        def forward(self, x: Tensor) -> Tensor:
            y = self.patch(x).flatten(2).transpose(1, 2)
            y = torch.cat([self.token.expand(y.shape[0], -1, -1), y], 1) + self.places
            return self.block(y)[:, 0]

    return Vision(), (s.pixels(),)


@on_pixels
def pixels_with_relations(y: Tensor, _s: Sizes) -> Tensor:
    """Every place attends to every other (Wang et al. 2018)."""
    flat = y.flatten(2)
    a = torch.softmax(flat.transpose(1, 2) @ flat / y.shape[1], -1)
    return y + (flat @ a.transpose(1, 2)).view_as(y)


@on_pixels
def style(y: Tensor, _s: Sizes) -> Tensor:
    """Means, deviations and products of channels (Gatys et al. 2016)."""
    flat = y.flatten(2)
    gram = flat @ flat.transpose(1, 2) / flat.shape[-1]
    mean, std = flat.mean(-1, keepdim=True), flat.std(-1, keepdim=True) + 1e-3
    return torch.cat([gram, (flat - mean) / std], -1)


@on_pixels
def warped(y: Tensor, _s: Sizes) -> Tensor:
    """An image read where a matrix made of it says (Jaderberg et al. 2015)."""
    angle = 0.2 * y.mean((1, 2, 3))
    zero, one = torch.zeros_like(angle), torch.ones_like(angle)
    theta = torch.stack([one, angle, zero, -angle, one, zero], -1).view(-1, 2, 3)
    steps = torch.linspace(-0.9, 0.9, y.shape[-1])
    rows, columns = torch.meshgrid(steps, steps, indexing="ij")
    places = torch.stack([columns, rows, torch.ones_like(rows)], -1).view(1, -1, 3)
    grid = (places @ theta.transpose(1, 2)).view(-1, y.shape[-2], y.shape[-1], 2)
    return fun.grid_sample(y, grid, align_corners=False)


@module
def weights_of_input(s: Sizes) -> Made:
    """A convolution whose weights another layer makes, one for each example (Ha et al. 2017)."""
    kernels = s.channels * s.channels * 9
    layers = {"make": nn.Linear(s.channels, kernels), "c": nn.Conv2d(s.channels, s.channels, 1)}

    def run(x: Tensor, make: Any, c: Any) -> Tensor:
        y = c(x)
        weight = make(y.mean((0, 2, 3))).view(s.channels, s.channels, 3, 3)
        return fun.conv2d(y, weight / 3, padding=1)

    return Of(run, **layers), (s.pixels(),)
