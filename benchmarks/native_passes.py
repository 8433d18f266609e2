"""Times of native kernels that pass over memory, beside PyTorch's eager ones: one thread each.

    python benchmarks/native_passes.py [PART OF A NAME] [--seconds 1] [--instructions v3]

Here are elementwise kernels and softmax; normalisation is in native_norms.py, attention and
recurrent operators are in native_sequences.py, which take the same arguments.

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

from gradtool.native import cross_entropy, elementwise, library, softmax

Aten = torch.ops.aten
Families = tuple[Callable[[], Iterator[Case]], ...]


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array)


def activations() -> Iterator[Case]:
    """Activations and their gradients."""
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
        native = elementwise.unary(name, x, y)
        yield Case(name, {"native": native, "torch": lambda other=other: other(u)}, arrays=(x, y))
    for name, other in backward.items():
        native = elementwise.binary(name, x, dy, y)
        runs = {"native": native, "torch": lambda other=other: other(g, u)}
        yield Case(name, runs, arrays=(x, dy, y))


def softmaxes() -> Iterator[Case]:
    """Softmax and its logarithm, with gradients."""
    for shape, axis in (((4096, 256), -1), ((512, 1000), -1), ((64, 10), -1), ((8, 21, 4096), 1)):
        x, dy = normal(*shape), normal(*shape)
        y, u, g = np.empty_like(x), tensor(x), tensor(dy)
        for log in (False, True):
            name, f = ("log_softmax", torch.log_softmax) if log else ("softmax", torch.softmax)
            slope = getattr(Aten, f"_{name}_backward_data")
            v = f(u, axis)
            forward = softmax.softmax(x, y, axis=axis, log=log)
            runs = {"native": forward, "torch": lambda f=f, u=u, axis=axis: f(u, axis)}
            yield Case(f"{name} {shape}", runs, arrays=(x, y))
            backward = softmax.softmax_grad(v.numpy(), dy, y, axis=axis, log=log)
            runs = {
                "native": backward,
                "torch": lambda slope=slope, g=g, v=v, axis=axis: slope(g, v, axis, torch.float32),
            }
            yield Case(f"{name}_grad {shape}", runs, arrays=(v, dy, y))
    x, labels = normal(512, 1000), np.arange(512) % 1000
    u, t, loss = tensor(x).requires_grad_(), tensor(labels), np.empty((), np.float32)
    room, dx, one = work(cross_entropy.work(x.shape)), np.empty_like(x), np.ones((), np.float32)
    strange = np.zeros(1, np.int64)
    calls = (
        cross_entropy.cross_entropy(x, labels, None, loss, None, room, strange),
        cross_entropy.cross_entropy_grad(x, labels, None, one, None, dx, room, strange),
    )

    def other() -> None:
        functional.cross_entropy(u, t).backward()
        u.grad = None

    yield Case(
        "cross-entropy fwd + bwd (512, 1000)",
        {"native": lambda: [call() for call in calls], "torch": other},
        arrays=(x, labels, loss, room, dx, one),
    )


def report(description: str, families: Families) -> None:
    """Times of all cases whose name has what the command line says."""
    arguments = argparse.ArgumentParser(description=description.splitlines()[0])
    arguments.add_argument("name", nargs="?", default="")
    arguments.add_argument("--seconds", type=float, default=1.0)
    arguments.add_argument("--instructions")
    given = arguments.parse_args()
    print(*library.status(), sep=", ")
    library.set_threads(1)
    with library.using(given.instructions):
        for case in (case for family in families for case in family()):
            if given.name not in case.name:
                continue
            times = best(case, given.seconds)
            own, other = times["native"], times["torch"]
            print(f"{case.name:44} {own * 1e6:10.1f} us  /torch {own / other:5.2f}", flush=True)


if __name__ == "__main__":
    report(__doc__, (activations, softmaxes))
