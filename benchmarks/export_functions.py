"""Functions of PyTorch on tensors, by family: indices, mathematics, losses. For `exports.py`."""

from __future__ import annotations

import torch
from export_modules import Sizes, on_tokens
from torch import Tensor
from torch.nn import functional as fun

# -------------------------------------------------------------------------- indices


@on_tokens
def picked(y: Tensor, _s: Sizes) -> Tensor:
    order = torch.tensor([2, 0, 1, 2])
    places = y.argsort(1)[:, :2]
    return (
        y.index_select(1, order)[:, :2] + y.gather(1, places) + torch.take_along_dim(y, places, 1)
    )


@on_tokens
def put(y: Tensor, _s: Sizes) -> Tensor:
    rows = torch.tensor([0, 2, 0])
    z = y.transpose(0, 1)
    a = torch.zeros_like(z).index_put((rows,), z[:3], accumulate=True)
    return a + z.index_add(0, rows, z[1:4])


@on_tokens
def scattered_sums(y: Tensor, s: Sizes) -> Tensor:
    places = (torch.arange(s.length) // 2).view(1, -1, 1).expand_as(y)
    a = torch.zeros_like(y).scatter_add(1, places, y)
    return a + torch.zeros_like(y).scatter_reduce(1, places, y, "amax", include_self=False)


@on_tokens
def put_by_slices(y: Tensor, _s: Sizes) -> Tensor:
    z = torch.zeros_like(y)
    z[:, 1:-1, ::2] = y[:, 2:, ::2] * 2
    z[:, 0] += y[:, -1]
    z[:, [1, 3], 1] = y[:, :2, 0]
    return z


@on_tokens
def sorted_(y: Tensor, _s: Sizes) -> Tensor:
    values, _ = torch.sort(y, dim=1, descending=True)
    return values * torch.linspace(0, 1, y.shape[1]).unsqueeze(-1)


@on_tokens
def extremes(y: Tensor, _s: Sizes) -> Tensor:
    return y.amax(1) + y.min(1).values + y.max(-1, keepdim=True).values.mean(1)


@on_tokens
def chosen(y: Tensor, _s: Sizes) -> Tensor:
    y = torch.where(y > 0, y * y, torch.sin(y)).masked_fill(y > 1, 0.3)
    return torch.maximum(y, y.flip(1)).clamp(-0.7, 0.9) + torch.minimum(y, y.roll(1, 1))


@on_tokens
def triangles(y: Tensor, _s: Sizes) -> Tensor:
    scores = torch.tanh(y) @ torch.tanh(y).transpose(1, 2) * 0.2
    return scores.tril(1) + scores.triu(-2) * 2 + torch.diag_embed(torch.diagonal(scores, 0, 1, 2))


@on_tokens
def repeated(y: Tensor, _s: Sizes) -> Tensor:
    a = y.repeat_interleave(2, dim=1) + torch.stack([y, -y], 2).flatten(1, 2)
    return a + torch.tile(y, (1, 2, 1)) + torch.repeat_interleave(y, 2, 1).expand_as(a)


@on_tokens
def moved(y: Tensor, _s: Sizes) -> Tensor:
    parts = torch.tensor_split(y, 3, dim=1)
    z = torch.cat([part.movedim(1, 2).swapaxes(1, 2) for part in parts], 1)
    return torch.roll(z, (1, -2), (1, 2)) + z.flip(1, 2) + torch.rot90(z, 2, (1, 2))


@on_tokens
def narrowed(y: Tensor, s: Sizes) -> Tensor:
    a = y.narrow(1, 1, s.length - 2) + y.select(1, 0).unsqueeze(1) + y[:, ::2][:, -1:]
    return a + torch.stack(y.unbind(1)[1:-1], 1) + y[..., None, :].squeeze(-2)[:, 1:-1]


@on_tokens
def pairs(y: Tensor, _s: Sizes) -> Tensor:
    rows, columns = torch.tril_indices(y.shape[1], y.shape[1], offset=-1)
    return (y @ y.transpose(1, 2))[:, rows, columns]


@on_tokens
def masked_select(y: Tensor, s: Sizes) -> Tensor:
    keep = torch.arange(s.length) % 3 != 1
    return y[:, keep]


@on_tokens
def nonzero(y: Tensor, s: Sizes) -> Tensor:
    mask = torch.triu(torch.ones(s.length, s.length)).bool()
    where = mask.nonzero()
    return y[:, where[:, 0]] * y[:, where[:, 1]]


@on_tokens
def gathered(y: Tensor, s: Sizes) -> Tensor:
    index = torch.arange(s.length - 1, -1, -1).view(1, -1, 1).expand(y.shape[0], -1, s.width)
    return y.gather(1, index) + y.flip(1)


@on_tokens
def scattered(y: Tensor, s: Sizes) -> Tensor:
    table = torch.zeros(s.length, s.length).scatter(1, torch.arange(s.length).view(-1, 1) // 2, 1.0)
    return table.to(y.dtype) @ y


@on_tokens
def one_hot(y: Tensor, s: Sizes) -> Tensor:
    return y @ fun.one_hot(torch.arange(s.width) % 3, 3).to(y.dtype)


@on_tokens
def cumulated(y: Tensor, _s: Sizes) -> Tensor:
    steps = torch.cumsum(torch.ones(y.shape[1]), 0)
    return torch.cumsum(y, 1) / steps.view(1, -1, 1)


@on_tokens
def top(y: Tensor, s: Sizes) -> Tensor:
    order = torch.topk(torch.sin(torch.arange(s.length).float()), 3).indices
    return y[:, order] + torch.topk(y, 3, dim=1).values


@on_tokens
def buckets(y: Tensor, s: Sizes) -> Tensor:
    places = torch.arange(s.length)
    far = (places[None] - places[:, None]).clamp(-2, 2) + 2
    counts = torch.where(far > 2, far % 3, torch.div(far, 2, rounding_mode="floor"))
    return (counts.to(y.dtype) @ y) / counts.sum()


@on_tokens
def einsum(y: Tensor, s: Sizes) -> Tensor:
    y = y.view(y.shape[0], -1, s.heads, s.head)
    return torch.einsum("bihd,bjhd->bhij", y, y) + torch.full((s.length, s.length), 0.5)


@on_tokens
def tiled(y: Tensor, s: Sizes) -> Tensor:
    return y.repeat(1, 2, 1) + torch.eye(s.width)[:1].repeat(2 * s.length, 1)


@on_tokens
def split(y: Tensor, s: Sizes) -> Tensor:
    a, b, c = y.split([1, 2, s.length - 3], dim=1)
    return torch.cat([c, a, b.sum(1, keepdim=True)], 1)


@on_tokens
def squeezed(y: Tensor, s: Sizes) -> Tensor:
    return y.unsqueeze(2).squeeze(2).view(*y.shape[:2], s.heads, -1).flatten(2).transpose(1, 2)


@on_tokens
def windows(y: Tensor, _s: Sizes) -> Tensor:
    return y.unfold(1, 4, 2).mean(-1)


@on_tokens
def new_zeros(y: Tensor, s: Sizes) -> Tensor:
    state = y.new_zeros(y.shape[0], 1, s.width)
    return torch.cat([state, y[:, :-1]], 1) + torch.ones_like(y) * y.size(1) + y.numel() ** 0.1


# ---------------------------------------------------------------------- mathematics


@on_tokens
def accumulated(y: Tensor, _s: Sizes) -> Tensor:
    return torch.cumsum(y, 1) + torch.diff(y, dim=1, prepend=y[:, :1])


@on_tokens
def logarithms(y: Tensor, _s: Sizes) -> Tensor:
    a = torch.logsumexp(y, -1, keepdim=True) + torch.logaddexp(y, y.flip(1)) + torch.log1p(y.abs())
    return a + torch.expm1(y) + torch.log2(y * y + 1) + torch.log10(y * y + 1) + torch.exp2(y)


@on_tokens
def angles(y: Tensor, _s: Sizes) -> Tensor:
    a = torch.atan2(y, y.flip(1) + 2) + torch.asinh(y) + torch.sinh(y) + torch.cosh(y)
    return a + torch.tan(y * 0.2) + torch.asin(torch.tanh(y) * 0.9) + torch.atanh(torch.sin(y) / 2)


@on_tokens
def remainders(y: Tensor, _s: Sizes) -> Tensor:
    return torch.fmod(y, 0.7) + torch.remainder(y, 0.7) + torch.frac(y * 1.3) + y.round() * 0.1


@on_tokens
def powers(y: Tensor, _s: Sizes) -> Tensor:
    y = torch.tanh(y)
    base = y.abs() + 0.7
    return (
        base**y
        + base.rsqrt()
        + 2.0**y
        + y.pow(3)
        + torch.sqrt(base)
        + base.reciprocal()
        + y.square()
    )


@on_tokens
def errors(y: Tensor, _s: Sizes) -> Tensor:
    return (
        torch.erf(y) + torch.erfc(y) + torch.sinc(y) + torch.special.expit(y) + torch.sgn(y) * 0.1
    )


@on_tokens
def combined(y: Tensor, _s: Sizes) -> Tensor:
    z = y.flip(1)
    a = torch.lerp(y, z, 0.3) + torch.addcmul(y, z, z, value=0.5) + torch.hypot(y, z)
    return (
        a
        + torch.addcdiv(y, z, z.abs() + 1, value=2)
        + torch.nan_to_num(y)
        + y.prod(1, keepdim=True)
    )


@on_tokens
def products(y: Tensor, _s: Sizes) -> Tensor:
    y = torch.tanh(y) * 0.2
    a = torch.baddbmm(y.transpose(1, 2) @ y, y.transpose(1, 2), y, beta=0.5, alpha=2)
    return a + torch.tensordot(y, y, ([0, 1], [0, 1])) + torch.einsum("bij,bij,bjk->bk", y, y, a)[
        :, None]  # fmt: skip


@on_tokens
def equations(y: Tensor, _s: Sizes) -> Tensor:
    a = torch.einsum("bii->bi", y @ y.transpose(1, 2)) + torch.einsum("btd->bt", y)
    return a + torch.einsum("...d,...d->...", y, y)


# --------------------------------------------------------------------------- losses


@on_tokens
def losses_of_numbers(y: Tensor, _s: Sizes) -> Tensor:
    other = torch.linspace(-1, 1, y.shape[2], dtype=y.dtype).expand_as(y)
    a = fun.smooth_l1_loss(y, other) + fun.huber_loss(y, other, delta=0.4) + fun.mse_loss(y, other)
    b = fun.l1_loss(y, other) + fun.binary_cross_entropy_with_logits(y, torch.sigmoid(other))
    return (a + b + fun.poisson_nll_loss(y, other.exp())).unsqueeze(0)


@on_tokens
def losses_of_classes(y: Tensor, s: Sizes) -> Tensor:
    labels = (torch.arange(s.length) % s.width).expand(y.shape[0], -1)
    weight = torch.linspace(0.5, 1.5, s.width)
    y = y.transpose(1, 2)
    a = fun.cross_entropy(y, labels, weight, label_smoothing=0.1)
    b = fun.nll_loss(fun.log_softmax(y, 1), labels, ignore_index=1)
    return (a + b + fun.kl_div(y.log_softmax(1), y.flip(1).softmax(1), reduction="sum")).unsqueeze(
        0
    )


@on_tokens
def losses_of_pairs(y: Tensor, _s: Sizes) -> Tensor:
    a, b, c = y[:, 0], y[:, 1], y[:, 2]
    signs = torch.where(torch.arange(y.shape[2]) % 2 > 0, 1.0, -1.0)
    found = fun.triplet_margin_loss(a, b, c) + fun.margin_ranking_loss(
        a, b, signs.expand_as(a), 0.2
    )
    return (found + fun.soft_margin_loss(a, signs.expand_as(a))).unsqueeze(0)
