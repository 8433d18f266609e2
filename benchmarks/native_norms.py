"""Times of native normalisation beside PyTorch's: see native_passes.py."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from native_kernels import Case, normal, work
from native_passes import Aten, report, tensor
from torch import Tensor

from gradtool.native import batch_norm, group_norm, layer_norm

EVERY = [True, True, True]


def batch_norm_relu(
    u: Tensor, r: Tensor | None, w: Tensor, b: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    out, mean, rstd = torch.native_batch_norm(u, w, b, b, w, True, 0.0, 1e-5)
    return torch.relu(out if r is None else out + r), mean, rstd


def batch_norm_relu_grad(
    g: Tensor, v: Tensor, u: Tensor, w: Tensor, b: Tensor, mean: Tensor, rstd: Tensor
) -> None:
    d = Aten.threshold_backward(g, v, 0)
    Aten.native_batch_norm_backward(d, u, w, b, w, mean, rstd, True, 1e-5, EVERY)


def layer_norm_of_sum(u: Tensor, r: Tensor, w: Tensor, b: Tensor) -> None:
    torch.native_layer_norm(u + r, w.shape, w, b, 1e-5)


def batch_norms() -> Iterator[Case]:
    """BatchNormalization in training and its gradient, channels first and last."""
    for n, c, s in ((8, 64, 56), (8, 256, 14), (8, 512, 7)):
        for last in (True, False):
            shape = (n, s, s, c) if last else (n, c, s, s)
            x, dy, dx = normal(*shape), normal(*shape), np.empty(shape, np.float32)
            y, dr, residual = np.empty_like(x), np.empty_like(x), normal(*shape)
            one, zero = np.ones(c, np.float32), np.zeros(c, np.float32)
            small = [np.empty(c, np.float32) for _ in range(6)]
            room = work(batch_norm.work(shape, last=last))
            u, g, r = (
                tensor(each).permute(0, 3, 1, 2) if last else tensor(each)
                for each in (x, dy, residual)
            )
            w, b = tensor(one), tensor(zero)
            for added in (None, residual):
                forward = batch_norm.batch_norm(
                    x, one, zero, zero, one, y, *small[:4], room, residual=added, relu=True,
                    training=True, last=last,
                )  # fmt: skip
                other = partial(batch_norm_relu, u, None if added is None else r, w, b)
                order = "nhwc" if last else "nchw"
                name = f"{order} {n}x{c}x{s}x{s}"
                name += "" if added is None else " + residual"
                keep = (x, dy, dx, y, dr, residual, one, zero, small, room)
                yield Case(f"bn + relu {name}", {"native": forward, "torch": other}, arrays=keep)
                forward()
                v, mean, rstd = other()
                backward = batch_norm.batch_norm_grad(
                    x,
                    one,
                    small[2],
                    small[3],
                    dy,
                    dx,
                    *small[4:],
                    room,
                    y=y,
                    dresidual=None if added is None else dr,
                    last=last,
                )
                other = partial(batch_norm_relu_grad, g, v, u, w, b, mean, rstd)
                runs = {"native": backward, "torch": other}
                yield Case(f"bn + relu grad {name}", runs, arrays=keep)


def layer_norms() -> Iterator[Case]:
    """LayerNormalization and its gradient, with a residual."""
    for rows, n in ((1024, 512), (4096, 768), (256, 4096)):
        x, dy, residual = normal(rows, n), normal(rows, n), normal(rows, n)
        one, zero = np.ones(n, np.float32), np.zeros(n, np.float32)
        y, total, dx, ds, db = (np.empty_like(a) for a in (x, x, x, one, one))
        mean, rstd = (np.empty((rows, 1), np.float32) for _ in range(2))
        room = work(layer_norm.layer_work(x.shape))
        u, g, w, b, r = (tensor(a) for a in (x, dy, one, zero, residual))
        keep = (x, dy, residual, one, zero, y, total, dx, ds, db, mean, rstd, room)
        forward = layer_norm.layer_norm(x, one, zero, y, mean, rstd)
        other = partial(torch.native_layer_norm, u, (n,), w, b, 1e-5)
        yield Case(f"layer norm {rows}x{n}", {"native": forward, "torch": other}, arrays=keep)
        joined = layer_norm.layer_norm(x, one, zero, y, mean, rstd, residual=residual, total=total)
        runs = {"native": joined, "torch": partial(layer_norm_of_sum, u, r, w, b)}
        yield Case(f"layer norm of a sum {rows}x{n}", runs, arrays=keep)
        forward()
        _, m, s = other()
        backward = layer_norm.layer_norm_grad(x, one, mean, rstd, dy, dx, ds, db, room)
        other = partial(Aten.native_layer_norm_backward, g, u, (n,), m, s, w, b, EVERY)
        runs = {"native": backward, "torch": other}
        yield Case(f"layer norm grad {rows}x{n}", runs, arrays=keep)
    x, dy = normal(8, 128, 28, 28), normal(8, 128, 28, 28)
    one, zero = np.ones(128, np.float32), np.zeros(128, np.float32)
    y, dx, ds, db = (np.empty_like(a) for a in (x, x, one, one))
    room = work(group_norm.work(x.shape))
    u, g, w, b = (tensor(a) for a in (x, dy, one, zero))
    sizes = (8, 128, 784, 32)
    _, m, s = torch.native_group_norm(u, w, b, *sizes, 1e-5)
    yield Case(
        "group norm 8x128x28x28",
        {
            "native": group_norm.group_norm(x, one, zero, y, room, groups=32),
            "torch": lambda: torch.native_group_norm(u, w, b, *sizes, 1e-5),
        },
        arrays=(x, one, zero, y),
    )
    yield Case(
        "group norm grad 8x128x28x28",
        {
            "native": group_norm.group_norm_grad(x, one, dy, dx, ds, db, room, groups=32),
            "torch": lambda: Aten.native_group_norm_backward(g, u, m, s, w, *sizes, EVERY),
        },
        arrays=(x, one, dy, dx, ds, db, room),
    )


if __name__ == "__main__":
    report(__doc__, (batch_norms, layer_norms))
