"""Times of native attention, LSTM and GRU beside PyTorch's: see native_passes.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from native_kernels import Case, normal, work
from native_passes import report, tensor
from torch import Tensor
from torch.nn import functional

from gradtool.native import attention, recurrent
from gradtool.operators.attention import shape_of
from gradtool.operators.recurrence import recurrence


def each(*calls: Callable[[], None]) -> None:
    for call in calls:
        call()


def attend(tensors: list[Tensor], g: Tensor | None = None, *, causal: bool) -> None:
    """Forward, and backward where there is a gradient."""
    with torch.set_grad_enabled(g is not None):
        found = functional.scaled_dot_product_attention(*tensors, is_causal=causal)
        if g is not None:
            torch.autograd.grad(found, tensors, g)


def recur(module: torch.nn.RNNBase, u: Tensor, v: Tensor | None = None) -> None:
    """Forward, and backward where there is a gradient."""
    with torch.set_grad_enabled(v is not None):
        found, _ = module(u)
        if v is not None:
            torch.autograd.grad(found, [u, *module.parameters()], v)


def attentions() -> Iterator[Case]:
    """Attention and its gradient, causal or not."""
    for b, h, s, d in ((4, 8, 256, 64), (1, 12, 1024, 64), (8, 4, 64, 32)):
        for causal in (False, True):
            q, k, v, dy = (normal(b, h, s, d) for _ in range(4))
            y, lse = np.empty_like(q), np.empty((b, h, s, 1), np.float32)
            dq, dk, dv = (np.empty_like(q) for _ in range(3))
            n = shape_of(q, k, v, is_causal=int(causal))
            room, back = work(attention.work(n)), work(attention.grad_work(n))
            tensors = [tensor(each).requires_grad_() for each in (q, k, v)]
            g = tensor(dy)
            forward = attention.attention(n, q, k, v, [], y, lse, room)
            backward = attention.attention_grad(
                n, q, k, v, lse, dy, None, [], dq, dk, dv, back
            )  # fmt: skip
            name = f"{b}x{h}x{s}x{d}{' causal' if causal else ''}"
            keep = (q, k, v, dy, y, lse, dq, dk, dv, room, back)
            runs = {"native": forward, "torch": partial(attend, tensors, causal=causal)}
            yield Case(f"attention {name}", runs, 4.0 * b * h * s * s * d, keep)
            runs = {
                "native": partial(each, forward, backward),
                "torch": partial(attend, tensors, g, causal=causal),
            }
            yield Case(f"attention fwd + bwd {name}", runs, 14.0 * b * h * s * s * d, keep)


def recurrences() -> Iterator[Case]:
    """LSTM and GRU with their gradients."""
    for t, b, i, h in ((64, 32, 256, 256), (32, 8, 64, 128)):
        for name, gates in (("lstm", 4), ("gru", 3)):
            x, dy = normal(t, b, i), normal(t, b, h)
            w, r, bias = normal(1, gates * h, i), normal(1, gates * h, h), normal(1, 2 * gates * h)
            w, r, bias = (each * np.float32(h**-0.5) for each in (w, r, bias))
            y, y_h, y_c = (np.empty(s, np.float32) for s in ((t, 1, b, h), (1, b, h), (1, b, h)))
            dx, dw, dr, db = (np.empty_like(each) for each in (x, w, r, bias))
            g, nothing = dy.reshape(y.shape), [None] * 2
            if gates == 4:
                n = recurrence("LSTM", x, r, {})
                kept = np.empty(recurrent.lstm_kept(n), np.float32)
                room = work(recurrent.lstm_work(n, is_kept=True))
                back = work(recurrent.lstm_grad_work(n, is_kept=True))
                forward = recurrent.lstm(
                    n, x, w, r, bias, *nothing, *nothing, y, y_h, y_c, kept, room
                )
                backward = recurrent.lstm_grad(
                    n, x, w, r, bias, *nothing, *nothing, y, g, *nothing, kept, dx, dw, dr, db,
                    *nothing, None, back,
                )  # fmt: skip
            else:
                n = recurrence("GRU", x, r, {})
                room, back = work(recurrent.gru_work(n)), work(recurrent.gru_grad_work(n))
                options = {"linear_before_reset": 1}
                forward = recurrent.gru(n, x, w, r, bias, *nothing, y, y_h, room, **options)
                backward = recurrent.gru_grad(
                    n, x, w, r, bias, *nothing, y, g, None, dx, dw, dr, db, None, back, **options
                )
            module = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[name](i, h)
            u, v = tensor(x).requires_grad_(), tensor(dy)
            keep = (x, dy, w, r, bias, y, y_h, y_c, dx, dw, dr, db, g, room, back)
            size = f"T{t} B{b} I{i} H{h}"
            yield Case(
                f"{name} {size}",
                {"native": forward, "torch": partial(recur, module, u)},
                arrays=keep,
            )
            runs = {
                "native": partial(each, forward, backward),
                "torch": partial(recur, module, u, v),
            }
            yield Case(f"{name} fwd + bwd {size}", runs, arrays=keep)


if __name__ == "__main__":
    report(__doc__, (attentions, recurrences))
