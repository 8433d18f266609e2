"""Layers of PyTorch that people's files have beside the common ones: for `exports.py`.

They go into `export_modules.MODULES`.
"""

from __future__ import annotations

from typing import Any

import torch
from export_modules import Made, Of, Sizes, module, on_pixels, on_tokens
from torch import Tensor, nn
from torch.nn import functional as fun
from torch.nn.utils import parametrizations, weight_norm

# ------------------------------------------------------------------------ recurrent


@module
def lstm_projected(s: Sizes) -> Made:
    r = nn.LSTM(s.width, s.head, 2, batch_first=True, bidirectional=True, proj_size=s.head // 2)
    return Of(lambda x, r: r(x)[0], r=r), (s.tokens(),)


@module
def lstm_states(s: Sizes) -> Made:
    r = nn.LSTM(s.width, s.width, batch_first=True)

    def run(x: Tensor, r: nn.Module) -> Tensor:
        first = torch.tanh(x[:, 0]).unsqueeze(0)
        y, (h, c) = r(x[:, 1:], (first, first * 0.5))
        return y.sum(1) + h[0] * c[0]

    return Of(run, r=r), (s.tokens(),)


@module
def gru_both(s: Sizes) -> Made:
    r = nn.GRU(s.width, s.head, 2, batch_first=True, bidirectional=True, bias=False)
    return Of(lambda x, r: torch.cat([r(x)[0].mean(1), *r(x)[1]], -1), r=r), (s.tokens(),)


@module
def rnn_relu(s: Sizes) -> Made:
    r = nn.RNN(s.width, s.head, 2, "relu", batch_first=True, bidirectional=True)
    return Of(lambda x, r: r(x)[0], r=r), (s.tokens(),)


@module
def cells(s: Sizes) -> Made:
    layers = {"a": nn.LSTMCell(s.width, s.head), "b": nn.GRUCell(s.head, s.head)}

    def run(x: Tensor, a: nn.Module, b: nn.Module) -> Tensor:
        h = c = g = x.new_zeros(x.shape[0], s.head)
        for i in range(3):
            h, c = a(x[:, i], (h, c))
            g = b(h, g)
        return g + c

    return Of(run, **layers), (s.tokens(),)


# --------------------------------------------------------------------- convolutions


@module
def conv_1d(s: Sizes) -> Made:
    c = nn.Conv1d(s.width, 2 * s.width, 3, stride=2, padding=2, dilation=2, groups=s.heads)
    return Of(lambda x, c: c(x.transpose(1, 2)), c=c), (s.tokens(),)


@module
def conv_3d(s: Sizes) -> Made:
    layers = {
        "c": nn.Conv3d(2, 4, 3, (1, 2, 1), (1, 0, 1), groups=2), "n": nn.BatchNorm3d(4),
        "p": nn.MaxPool3d(2, padding=1),
    }  # fmt: skip
    x = torch.randn(s.batch, 2, 4, s.image // 2, 5)
    return Of(lambda x, c, n, p: p(n(c(x))), **layers), (x,)


@module
def conv_padding_modes(s: Sizes) -> Made:
    layers = {
        m: nn.Conv2d(s.channels, 3, 3, padding=1, padding_mode=m)
        for m in ("circular", "replicate", "reflect")
    }

    def run(x: Tensor, circular: Any, replicate: Any, reflect: Any) -> Tensor:
        y: Tensor = circular(x) * replicate(x) + reflect(x)
        return y

    return Of(run, **layers), (s.pixels(),)


@module
def conv_same(s: Sizes) -> Made:
    c = nn.Conv2d(s.channels, s.channels, (4, 3), padding="same", dilation=(1, 2), groups=2)
    return Of(lambda x, c: c(x), c=c), (s.pixels(),)


@module
def conv_transposed(s: Sizes) -> Made:
    c = s.channels
    layers = {
        "a": nn.ConvTranspose2d(c, c, 3, 2, 1, output_padding=1, groups=2),
        "b": nn.ConvTranspose2d(c, 3, (3, 2), (1, 2), padding=(2, 0), dilation=(2, 1)),
    }
    return Of(lambda x, a, b: b(a(x)), **layers), (s.pixels(),)


@module
def conv_transposed_lines(s: Sizes) -> Made:
    layers = {
        "a": nn.ConvTranspose1d(s.width, s.width, 4, 3, 1, 2, groups=s.heads, bias=False),
        "b": nn.ConvTranspose3d(1, 2, 2, 2, output_padding=(1, 0, 1)),
    }

    def run(x: Tensor, a: nn.Module, b: nn.Module) -> Tensor:
        y: Tensor = b(a(x.transpose(1, 2)).reshape(x.shape[0], 1, s.heads, s.head, -1))
        return y

    return Of(run, **layers), (s.tokens(),)


@on_pixels
def folded(y: Tensor, _s: Sizes) -> Tensor:
    size = y.shape[2:]
    return fun.fold(fun.unfold(y, 3, padding=1) * 0.5, (size[0], size[1]), 3, padding=1)


@on_pixels
def convolved_by_itself(y: Tensor, _s: Sizes) -> Tensor:
    return fun.conv2d(y, y[0, :, :3, :3].unsqueeze(1), groups=y.shape[1])


# ---------------------------------------------------------------------------- pools


@on_pixels
def pools(y: Tensor, _s: Sizes) -> Tensor:
    a = fun.avg_pool2d(y, 3, 2, 1, ceil_mode=True, count_include_pad=False)
    return a + fun.max_pool2d(y, 3, 2, 1, dilation=1, ceil_mode=True)


@on_pixels
def max_pool_dilated(y: Tensor, _s: Sizes) -> Tensor:
    return fun.max_pool2d(y, (2, 3), 1, (0, 1), dilation=(2, 1))


@on_pixels
def lp_pools(y: Tensor, _s: Sizes) -> Tensor:
    return fun.lp_pool2d(y.abs() + 0.1, 2, 2)


@on_pixels
def adaptive_pools_that_divide(y: Tensor, _s: Sizes) -> Tensor:
    return fun.adaptive_max_pool2d(y, 4) + fun.adaptive_avg_pool2d(y, (4, 1))


@on_tokens
def pools_of_lines(y: Tensor, _s: Sizes) -> Tensor:
    y = y.transpose(1, 2)
    return torch.cat([fun.max_pool1d(y, 3, 1, 1), fun.avg_pool1d(y, 3, 1, 1)], 1)


# --------------------------------------------------------------------------- resize


@on_pixels
def bicubic(y: Tensor, _s: Sizes) -> Tensor:
    return fun.interpolate(y, scale_factor=1.5, mode="bicubic", align_corners=False)


@on_pixels
def bicubic_smaller(y: Tensor, _s: Sizes) -> Tensor:
    return fun.interpolate(y, size=(5, 6), mode="bicubic", antialias=True)


@on_pixels
def bilinear_smaller(y: Tensor, _s: Sizes) -> Tensor:
    return fun.interpolate(y, size=(3, 7), mode="bilinear", antialias=True)


@on_pixels
def bilinear_corners(y: Tensor, _s: Sizes) -> Tensor:
    return fun.interpolate(y, size=(11, 5), mode="bilinear", align_corners=True)


@on_pixels
def nearest_sizes(y: Tensor, _s: Sizes) -> Tensor:
    return fun.interpolate(fun.interpolate(y, size=7), size=(10, 5), mode="nearest-exact")


@on_tokens
def linear_lines(y: Tensor, _s: Sizes) -> Tensor:
    return fun.interpolate(y, scale_factor=2.5, mode="linear")


@on_pixels
def trilinear(y: Tensor, _s: Sizes) -> Tensor:
    return fun.interpolate(y.unsqueeze(1), scale_factor=(1, 0.5, 1.5), mode="trilinear")


@on_pixels
def area(y: Tensor, _s: Sizes) -> Tensor:
    return fun.interpolate(y, size=(4, 2), mode="area")


def _grid(y: Tensor, mode: str, padding: str, *, corners: bool) -> Tensor:
    turn = y.mean((1, 2, 3)).view(-1, 1, 1) * 0.3
    square = torch.eye(2).repeat(y.shape[0], 1, 1) + turn
    theta = torch.cat([square, turn.expand(-1, 2, 1)], 2)
    grid = fun.affine_grid(theta, [y.shape[0], y.shape[1], 5, 6], align_corners=corners)
    return fun.grid_sample(y, grid, mode, padding, align_corners=corners)


@on_pixels
def sampled(y: Tensor, _s: Sizes) -> Tensor:
    return _grid(y, "bilinear", "zeros", corners=False)


@on_pixels
def sampled_corners(y: Tensor, _s: Sizes) -> Tensor:
    return _grid(y, "bilinear", "reflection", corners=True)


@on_pixels
def sampled_bicubic(y: Tensor, _s: Sizes) -> Tensor:
    return _grid(y, "bicubic", "border", corners=False)


@on_pixels
def sampled_nearest(y: Tensor, _s: Sizes) -> Tensor:
    grid = torch.linspace(-0.9, 0.9, 24).view(1, 3, 4, 2).expand(y.shape[0], -1, -1, -1)
    return fun.grid_sample(y, grid, "nearest", align_corners=False)


# ---------------------------------------------------------------------------- norms


@module
def norms(s: Sizes) -> Made:
    c = s.channels
    layers = {
        "a": nn.InstanceNorm2d(c, affine=True), "b": nn.LocalResponseNorm(3, 0.1),
        "c": nn.GroupNorm(c // 2, c, affine=False), "d": nn.BatchNorm2d(c, affine=False),
    }  # fmt: skip
    return Of(lambda x, a, b, c, d: d(c(b(a(x)))), **layers), (s.pixels(),)


@module
def norms_of_tokens(s: Sizes) -> Made:
    layers = {
        "a": nn.LayerNorm([s.length, s.width]), "b": nn.RMSNorm(s.width),
        "c": nn.LayerNorm(s.width, elementwise_affine=False),
    }  # fmt: skip
    return Of(lambda x, a, b, c: c(torch.sin(b(a(x)) * 3)), **layers), (s.tokens(),)


@module
def norm_of_rows(s: Sizes) -> Made:
    layers = {"n": nn.BatchNorm1d(s.width), "f": nn.Linear(s.width, s.width)}
    return Of(lambda x, n, f: n(f(x).flatten(0, 1)), **layers), (s.tokens(),)


@module
def weight_normed(s: Sizes) -> Made:
    layers = {
        "a": parametrizations.weight_norm(nn.Linear(s.width, s.width)),
        "b": weight_norm(nn.Linear(s.width, 3)),
    }
    return Of(lambda x, a, b: b(a(x)), **layers), (s.tokens(),)


@module
def spectral_normed(s: Sizes) -> Made:
    layer = parametrizations.spectral_norm(nn.Linear(s.width, s.width))
    return Of(lambda x, f: f(x), f=layer.eval()), (s.tokens(),)


@on_tokens
def normalized(y: Tensor, _s: Sizes) -> Tensor:
    return fun.normalize(y, dim=-1) + fun.normalize(y, p=1, dim=1) + y.renorm(2, 2, 1.0)


@on_tokens
def statistics(y: Tensor, _s: Sizes) -> Tensor:
    variance, mean = torch.var_mean(y, 1, keepdim=True)
    return (y - mean) / (variance + 0.1).sqrt() + y.std(-1, keepdim=True) + y.var(0, correction=0)


@on_tokens
def norms_by_order(y: Tensor, _s: Sizes) -> Tensor:
    found = [y.norm(p, -1) for p in (1, 2, 3.5, float("inf"))]
    return torch.stack([*found, torch.linalg.vector_norm(y, dim=-1)])
