"""Times of native kernels that pass over memory, beside PyTorch's eager ones: one thread each.

    python benchmarks/native_passes.py [PART OF A NAME] [--seconds 1] [--instructions v3]

As benchmarks/native_kernels.py: a time is the least processor time of interleaved rounds, and a
ratio below 1 is faster than PyTorch.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import numpy as np
import torch
from native_kernels import Case, best, normal, work
from torch.nn import functional

from gradtool.native import (
    attention,
    batch_norm,
    cross_entropy,
    elementwise,
    library,
    norms,
    recurrent,
    softmax,
)
from gradtool.operators.attention import shape_of

Aten = torch.ops.aten


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array)


def activations(isa: str | None) -> Iterator[Case]:
    x, dy = normal(1024, 2048), normal(1024, 2048)
    y, u, g = np.empty_like(x), tensor(x), tensor(dy)
    forward = {
        "relu": torch.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "exp": torch.exp,
        "gelu": functional.gelu, "silu": functional.silu,
        "gelu_tanh": lambda u: functional.gelu(u, approximate="tanh"),
    }  # fmt: skip
    backward = {
        "relu_grad": lambda g, u: Aten.threshold_backward(g, u, 0),
        "sigmoid_grad": Aten.sigmoid_backward, "tanh_grad": Aten.tanh_backward,
        "gelu_grad": Aten.gelu_backward, "silu_grad": Aten.silu_backward,
        "gelu_tanh_grad": lambda g, u: Aten.gelu_backward(g, u, approximate="tanh"),
    }  # fmt: skip
    for name, other in forward.items():
        native = elementwise.unary(name, x, y, instructions=isa)
        yield Case(name, {"native": native, "torch": lambda other=other: other(u)}, arrays=(x, y))
    for name, other in backward.items():
        native = elementwise.binary(name, x, dy, y, instructions=isa)
        runs = {"native": native, "torch": lambda other=other: other(g, u)}
        yield Case(name, runs, arrays=(x, dy, y))
    bias, code = normal(2048), [("add", 3, 0, 1), ("gelu", 2, 3)]
    room, b = work(elementwise.work(code, [x.shape, bias.shape], x.shape)), tensor(bias)
    native = elementwise.run(code, [x, bias], [y], room, instructions=isa)
    yield Case(
        "bias + gelu", {"native": native, "torch": lambda: functional.gelu(u + b)},
        arrays=(x, bias, y, room),
    )  # fmt: skip


def softmaxes(isa: str | None) -> Iterator[Case]:
    for shape, axis in (((4096, 256), -1), ((512, 1000), -1), ((64, 10), -1), ((8, 21, 4096), 1)):
        x, dy = normal(*shape), normal(*shape)
        y, u, g = np.empty_like(x), tensor(x), tensor(dy)
        for log in (False, True):
            name, f = ("log_softmax", torch.log_softmax) if log else ("softmax", torch.softmax)
            slope = Aten._log_softmax_backward_data if log else Aten._softmax_backward_data
            v = f(u, axis)
            forward = softmax.softmax(x, y, axis=axis, log=log, instructions=isa)
            runs = {"native": forward, "torch": lambda f=f, u=u, axis=axis: f(u, axis)}
            yield Case(f"{name} {shape}", runs, arrays=(x, y))
            backward = softmax.softmax_grad(
                v.numpy(), dy, y, axis=axis, log=log, instructions=isa
            )
            runs = {
                "native": backward,
                "torch": lambda slope=slope, g=g, v=v, axis=axis: slope(g, v, axis, torch.float32),
            }
            yield Case(f"{name}_grad {shape}", runs, arrays=(v, dy, y))
    x, labels = normal(512, 1000), np.arange(512) % 1000
    u, t, loss = tensor(x).requires_grad_(), tensor(labels), np.empty((), np.float32)
    room, dx, one = work(cross_entropy.work(x.shape)), np.empty_like(x), np.ones((), np.float32)
    calls = (
        cross_entropy.cross_entropy(x, labels, None, loss, None, room, instructions=isa),
        cross_entropy.cross_entropy_grad(x, labels, None, one, None, dx, room, instructions=isa),
    )

    def other() -> None:
        functional.cross_entropy(u, t).backward()
        u.grad = None

    yield Case(
        "cross-entropy fwd + bwd (512, 1000)",
        {"native": lambda: [call() for call in calls], "torch": other},
        arrays=(x, labels, loss, room, dx, one),
    )


def batch_norms(isa: str | None) -> Iterator[Case]:
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
                    training=True, last=last, instructions=isa,
                )  # fmt: skip

                def other(u=u, r=r, added=added, w=w, b=b):
                    out, mean, rstd = torch.native_batch_norm(u, w, b, b, w, True, 0.0, 1e-5)
                    return torch.relu(out if added is None else out + r), mean, rstd

                order = "nhwc" if last else "nchw"
                name = f"{order} {n}x{c}x{s}x{s}"
                name += "" if added is None else " + residual"
                keep = (x, dy, dx, y, dr, residual, one, zero, small, room)
                yield Case(f"bn + relu {name}", {"native": forward, "torch": other}, arrays=keep)
                forward()
                v, mean, rstd = other()
                backward = batch_norm.batch_norm_grad(
                    x, one, small[2], small[3], dy, dx, *small[4:], room, y=y,
                    dresidual=None if added is None else dr, last=last, instructions=isa,
                )

                def other_grad(u=u, g=g, v=v, mean=mean, rstd=rstd, w=w, b=b):
                    d = Aten.threshold_backward(g, v, 0)
                    mask = [True, True, True]
                    return Aten.native_batch_norm_backward(
                        d, u, w, b, w, mean, rstd, True, 1e-5, mask
                    )

                runs = {"native": backward, "torch": other_grad}
                yield Case(f"bn + relu grad {name}", runs, arrays=keep)


def layer_norms(isa: str | None) -> Iterator[Case]:
    for rows, n in ((1024, 512), (4096, 768), (256, 4096)):
        x, dy, residual = normal(rows, n), normal(rows, n), normal(rows, n)
        one, zero = np.ones(n, np.float32), np.zeros(n, np.float32)
        y, total, dx, ds, db = (np.empty_like(a) for a in (x, x, x, one, one))
        mean, rstd = (np.empty((rows, 1), np.float32) for _ in range(2))
        room = work(norms.layer_work(x.shape))
        u, g, w, b, r = (tensor(a) for a in (x, dy, one, zero, residual))
        keep = (x, dy, residual, one, zero, y, total, dx, ds, db, mean, rstd, room)
        forward = norms.layer_norm(x, one, zero, y, mean, rstd, instructions=isa)

        def other(u=u, n=n, w=w, b=b):
            return torch.native_layer_norm(u, (n,), w, b, 1e-5)

        yield Case(f"layer norm {rows}x{n}", {"native": forward, "torch": other}, arrays=keep)
        joined = norms.layer_norm(
            x, one, zero, y, mean, rstd, residual=residual, total=total, instructions=isa
        )
        runs = {"native": joined, "torch": lambda u=u, r=r, other=other: other(u + r)}
        yield Case(f"layer norm of a sum {rows}x{n}", runs, arrays=keep)
        forward()
        _, m, s = other()
        backward = norms.layer_norm_grad(
            x, one, mean, rstd, dy, dx, ds, db, room, instructions=isa
        )

        def other_grad(g=g, u=u, n=n, m=m, s=s, w=w, b=b):
            return Aten.native_layer_norm_backward(g, u, (n,), m, s, w, b, [True, True, True])

        runs = {"native": backward, "torch": other_grad}
        yield Case(f"layer norm grad {rows}x{n}", runs, arrays=keep)
    x, dy = normal(8, 128, 28, 28), normal(8, 128, 28, 28)
    one, zero = np.ones(128, np.float32), np.zeros(128, np.float32)
    y, dx, ds, db = (np.empty_like(a) for a in (x, x, one, one))
    room = work(norms.group_work(x.shape))
    u, g, w, b = (tensor(a) for a in (x, dy, one, zero))
    sizes = (8, 128, 784, 32)
    _, m, s = torch.native_group_norm(u, w, b, *sizes, 1e-5)
    yield Case(
        "group norm 8x128x28x28",
        {
            "native": norms.group_norm(x, one, zero, y, groups=32, instructions=isa),
            "torch": lambda: torch.native_group_norm(u, w, b, *sizes, 1e-5),
        },
        arrays=(x, one, zero, y),
    )
    yield Case(
        "group norm grad 8x128x28x28",
        {
            "native": norms.group_norm_grad(
                x, one, dy, dx, ds, db, room, groups=32, instructions=isa
            ),
            "torch": lambda: Aten.native_group_norm_backward(
                g, u, m, s, w, *sizes, [True, True, True]
            ),
        },
        arrays=(x, one, dy, dx, ds, db, room),
    )


def attentions(isa: str | None) -> Iterator[Case]:
    for b, h, s, d in ((4, 8, 256, 64), (1, 12, 1024, 64), (8, 4, 64, 32)):
        for causal in (False, True):
            q, k, v, dy = (normal(b, h, s, d) for _ in range(4))
            y, lse = np.empty_like(q), np.empty((b, h, s, 1), np.float32)
            dq, dk, dv = (np.empty_like(q) for _ in range(3))
            n = shape_of(q, k, v, is_causal=int(causal))
            room, back = work(attention.work(n)), work(attention.grad_work(n))
            tensors = [tensor(each).requires_grad_() for each in (q, k, v)]
            g = tensor(dy)
            forward = attention.attention(
                q, k, v, [], y, lse, room, is_causal=int(causal), instructions=isa
            )
            backward = attention.attention_grad(
                q, k, v, lse, dy, None, [], dq, dk, dv, back, is_causal=int(causal),
                instructions=isa,
            )  # fmt: skip

            def other(tensors=tensors, causal=causal):
                with torch.no_grad():
                    functional.scaled_dot_product_attention(*tensors, is_causal=causal)

            def both(tensors=tensors, g=g, causal=causal):
                found = functional.scaled_dot_product_attention(*tensors, is_causal=causal)
                torch.autograd.grad(found, tensors, g)

            name = f"{b}x{h}x{s}x{d}{' causal' if causal else ''}"
            keep = (q, k, v, dy, y, lse, dq, dk, dv, room, back)
            runs = {"native": forward, "torch": other}
            yield Case(f"attention {name}", runs, 4.0 * b * h * s * s * d, keep)
            runs = {
                "native": lambda forward=forward, backward=backward: (forward(), backward()),
                "torch": both,
            }
            yield Case(f"attention fwd + bwd {name}", runs, 14.0 * b * h * s * s * d, keep)


def recurrences(isa: str | None) -> Iterator[Case]:
    for t, b, i, h in ((64, 32, 256, 256), (32, 8, 64, 128)):
        for name, gates in (("lstm", 4), ("gru", 3)):
            x, dy = normal(t, b, i), normal(t, b, h)
            w, r, bias = normal(1, gates * h, i), normal(1, gates * h, h), normal(1, 2 * gates * h)
            w, r, bias = (each * np.float32(h**-0.5) for each in (w, r, bias))
            y, y_h, y_c = (np.empty(s, np.float32) for s in ((t, 1, b, h), (1, b, h), (1, b, h)))
            dx, dw, dr, db = (np.empty_like(each) for each in (x, w, r, bias))
            g, nothing = dy.reshape(y.shape), [None] * 2
            if gates == 4:
                n = recurrent.lstm_shape(x, r)
                room, back = work(recurrent.lstm_work(n)), work(recurrent.lstm_grad_work(n))
                forward = recurrent.lstm(
                    x, w, r, bias, *nothing, *nothing, y, y_h, y_c, room, instructions=isa
                )
                backward = recurrent.lstm_grad(
                    x, w, r, bias, *nothing, *nothing, y, g, *nothing, dx, dw, dr, db, *nothing,
                    None, back, instructions=isa,
                )  # fmt: skip
            else:
                n = recurrent.gru_shape(x, r)
                room, back = work(recurrent.gru_work(n)), work(recurrent.gru_grad_work(n))
                options = {"linear_before_reset": 1, "instructions": isa}
                forward = recurrent.gru(x, w, r, bias, *nothing, y, y_h, room, **options)
                backward = recurrent.gru_grad(
                    x, w, r, bias, *nothing, y, g, None, dx, dw, dr, db, None, back, **options
                )
            module = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[name](i, h)
            u, v = tensor(x).requires_grad_(), tensor(dy)

            def other(module=module, u=u):
                with torch.no_grad():
                    module(u)

            def both(module=module, u=u, v=v):
                found, _ = module(u)
                torch.autograd.grad(found, [u, *module.parameters()], v)

            keep = (x, dy, w, r, bias, y, y_h, y_c, dx, dw, dr, db, g, room, back)
            size = f"T{t} B{b} I{i} H{h}"
            yield Case(f"{name} {size}", {"native": forward, "torch": other}, arrays=keep)
            runs = {
                "native": lambda forward=forward, backward=backward: (forward(), backward()),
                "torch": both,
            }
            yield Case(f"{name} fwd + bwd {size}", runs, arrays=keep)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("name", nargs="?", default="")
    arguments.add_argument("--seconds", type=float, default=1.0)
    arguments.add_argument("--instructions")
    given = arguments.parse_args()
    print(*library.status(), sep=", ")
    library.set_threads(1)
    families: tuple[Callable[[str | None], Iterator[Case]], ...]
    families = (activations, softmaxes, batch_norms, layer_norms, attentions, recurrences)
    for case in (case for family in families for case in family(given.instructions)):
        if given.name not in case.name:
            continue
        times = best(case, given.seconds)
        own, other = times["native"], times["torch"]
        print(f"{case.name:44} {own * 1e6:10.1f} us  /torch {own / other:5.2f}", flush=True)


if __name__ == "__main__":
    main()
