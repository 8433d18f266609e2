"""Times of native kernels beside numpy (OpenBLAS) and PyTorch, one thread each, in one process.

    python benchmarks/native_kernels.py [PART OF A NAME] [--seconds 1] [--instructions v3]

Of each case every library has its turn, round after round; a time is the least processor time of
all rounds.  A ratio below 1 is faster than the other library.  PyTorch may be absent.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from gradtool.native import (
    conv,
    depthwise,
    embedding,
    gemm,
    library,
    optimizers,
    pooling,
    winograd,
)

try:
    import torch

    torch.set_num_threads(1)
except ImportError:
    torch = None

Run = Callable[[], object]
RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Case:
    """One computation, by library."""

    name: str
    runs: dict[str, Run]
    flops: float = 0.0
    arrays: object = None  # what bound calls point into


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def work(size: int) -> np.ndarray:
    return np.zeros(size // 4 + 1, np.float32)


def products() -> Iterator[Case]:
    """Matrix products, plain and transposed."""
    sizes = (
        *((64, 64, 64), (128, 128, 128), (256, 256, 256), (512, 512, 512), (1024, 1024, 1024)),
        *((1024, 2048, 512), (1024, 512, 2048), (2048, 2048, 2048), (32, 1024, 1024)),
        *((1, 1024, 1024), (4096, 64, 64), (64, 10, 128), (3136, 64, 576), (512, 4608, 49)),
        *((1024, 256, 2048), (256, 1024, 2048)),
    )
    for m, n, k in sizes:
        for turned in ("nn", "nt", "tn"):
            a, b, c = normal(m, k), normal(k, n), np.empty((m, n), np.float32)
            a = np.ascontiguousarray(a.T) if turned[0] == "t" else a
            b = np.ascontiguousarray(b.T) if turned[1] == "t" else b
            left, right = a.T if turned[0] == "t" else a, b.T if turned[1] == "t" else b
            room = work(gemm.work(1, m, n, k))
            options = {"a_turned": turned[0] == "t", "b_turned": turned[1] == "t"}
            yield Case(
                f"gemm {m}x{n}x{k} {turned}",
                {
                    "native": gemm.gemm(a, b, c, room, **options),
                    "numpy": lambda left=left, right=right, c=c: np.matmul(left, right, out=c),
                    **_torch_product(left, right, c),
                },
                2.0 * m * n * k,
                (a, b, c, room),
            )


def _torch_product(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> dict[str, Run]:
    if torch is None:
        return {}
    left, right, out = map(torch.from_numpy, (a, b, c))
    return {"torch": lambda: torch.mm(left, right, out=out)}


def winograds() -> Iterator[Case]:
    """Convolutions of 3 × 3 by Winograd."""
    for n, c, h in (
        (8, 64, 56),
        (8, 128, 28),
        (8, 256, 14),
        (8, 512, 7),
        (2, 64, 224),
        (64, 32, 32),
    ):
        x, w, y = normal(n, h, h, c), normal(c, c, 3, 3), normal(n, h, h, c)
        flops = 2.0 * n * h * h * c * c * 9
        made = {"y": np.empty_like(y), "dx": np.empty_like(x), "dw": np.empty_like(w)}
        rooms = {
            "y": work(winograd.work(n, h, h, c, c)),
            "dx": work(winograd.work(n, h, h, c, c)),
            "dw": work(winograd.work(n, h, h, c, c)),
        }
        calls = {"y": (winograd.forward, x, w), "dx": (winograd.gradient_x, y, w)}
        calls["dw"] = (winograd.gradient_w, x, y)
        for kind, (function, *inputs) in calls.items():
            own = function(*inputs, made[kind], rooms[kind])
            others = _torch_conv(kind, x, w, y, {"padding": (1, 1)})
            yield Case(f"winograd {kind} {n}x{c}x{h}", {"native": own, **others}, flops)


def convolutions() -> Iterator[Case]:
    """`(batch, channels, height, outputs, kernel, stride, group)`."""
    table = (
        *((8, 3, 224, 64, 7, 2, 1), (8, 64, 56, 256, 1, 1, 1), (8, 256, 56, 64, 1, 1, 1)),
        *((8, 64, 56, 128, 1, 2, 1), (8, 64, 56, 128, 3, 2, 1), (8, 256, 14, 512, 3, 2, 1)),
        *((8, 64, 56, 64, 3, 1, 1), (64, 3, 32, 32, 3, 1, 1), (8, 128, 28, 128, 3, 1, 32)),
    )
    for n, c, h, m, k, stride, group in table:
        window = conv.Window((stride,) * 2, pads=(k // 2,) * 2, group=group)
        out = (h + 2 * (k // 2) - k) // stride + 1
        x, w, y = normal(n, h, h, c), normal(m, c // group, k, k), normal(n, out, out, m)
        sizes = (x.shape, w.shape, y.shape, window)
        rooms = {
            "y": work(conv.work(*sizes)),
            "dx": work(conv.work(*sizes, backward=True)),
            "dw": work(conv.gradient_w_work(*sizes)),
        }
        made = {"y": np.empty_like(y), "dx": np.empty_like(x), "dw": np.empty_like(w)}
        calls = {"y": (conv.forward, x, w), "dx": (conv.gradient_x, y, w)}
        calls["dw"] = (conv.gradient_w, x, y)
        options = {"padding": (k // 2,) * 2, "stride": (stride,) * 2, "groups": group}
        for kind, (function, *inputs) in calls.items():
            own = function(*inputs, made[kind], rooms[kind], window)
            others = _torch_conv(kind, x, w, y, options)
            name = f"conv {kind} {n}x{c}x{h} to {m} by {k} /{stride} of {group}"
            yield Case(name, {"native": own, **others}, 2.0 * y.size * w[0].size)


def _torch_conv(
    kind: str, x: np.ndarray, w: np.ndarray, y: np.ndarray, options: dict[str, object]
) -> dict[str, Run]:
    """One part of a convolution in PyTorch, channels first and channels last."""
    if torch is None:
        return {}
    given = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1} | options
    found: dict[str, Run] = {}
    for name, form in (("torch", torch.contiguous_format), ("torch-nhwc", torch.channels_last)):
        tx, ty = (
            torch.from_numpy(v).permute(0, 3, 1, 2).contiguous(memory_format=form) for v in (x, y)
        )
        tw = torch.from_numpy(w).contiguous(memory_format=form)
        mask = (kind == "dx", kind == "dw", False)
        rest = (*(given[key] for key in ("stride", "padding", "dilation")), False, (0, 0))

        def backward(ty=ty, tx=tx, tw=tw, rest=rest, mask=mask) -> object:  # noqa: ANN001 - defaults
            return torch.ops.aten.convolution_backward(
                ty, tx, tw, None, *rest, given["groups"], mask
            )

        found[name] = backward
        if kind == "y":
            found[name] = lambda tx=tx, tw=tw: torch.conv2d(tx, tw, **given)
    return found


def passes() -> Iterator[Case]:
    """Kernels of one pass over memory."""
    x, y = normal(8, 112, 112, 64), normal(8, 56, 56, 64)
    places, dx = np.zeros(y.shape, np.uint16), np.empty_like(x)
    window = pooling.Window((3, 3), (2, 2), pads=(1, 1, 1, 1))
    own = pooling.max_pool(x, y, places, window)
    yield Case("max_pool 8x64x112 3/2", {"native": own, **_torch_pool(x, y, "y")})
    own = pooling.max_pool_gradient(y, places, dx, window)
    yield Case("max_pool dx 8x64x112 3/2", {"native": own, **_torch_pool(x, y, "dx")})
    small, mean = normal(8, 7, 7, 512), np.empty((8, 1, 1, 512), np.float32)
    own = pooling.average_pool(small, mean, pooling.Window((7, 7)))
    first = None if torch is None else torch.from_numpy(small).permute(0, 3, 1, 2).contiguous()
    others = {"torch": lambda: first.mean((2, 3))} if torch else {}
    others["numpy"] = lambda: small.mean((1, 2), out=mean[:, 0, 0])
    yield Case("average_pool global 8x512x7", {"native": own, **others})

    for c, h in ((64, 56), (256, 14)):
        x, w, y = normal(8, h, h, c), normal(c, 1, 3, 3), normal(8, h, h, c)
        room, window = work(depthwise.work(w.shape)), conv.Window(pads=(1, 1), group=c)
        made = {"y": np.empty_like(y), "dx": np.empty_like(x), "dw": np.empty_like(w)}
        calls = {"y": (depthwise.forward, x, w), "dx": (depthwise.gradient_x, y, w)}
        calls["dw"] = (depthwise.gradient_w, x, y)
        for kind, (function, *inputs) in calls.items():
            own = function(*inputs, made[kind], room, window)
            others = _torch_conv(kind, x, w, y, {"padding": (1, 1), "groups": c})
            yield Case(f"depthwise {kind} 8x{c}x{h}", {"native": own, **others})

    table, index, rows = normal(50257, 512), RNG.integers(0, 50257, 1024), normal(1024, 512)
    wrong, held = (
        np.zeros(1, np.int64),
        torch and (torch.from_numpy(table), torch.from_numpy(index)),
    )
    own = embedding.gather(table, index, rows, wrong)
    others = {"numpy": lambda: np.take(table, index, axis=0, out=rows, mode="clip")}
    others |= {"torch": lambda: torch.embedding(*held)} if torch else {}
    yield Case("embedding 1024 of 50257x512", {"native": own, **others})
    own = embedding.gradient(rows, index, table, wrong)
    made = torch and torch.from_numpy(rows)
    others = {}
    if torch:
        others["torch"] = lambda: torch.ops.aten.embedding_dense_backward(
            made, held[1], 50257, -1, False
        )
    yield Case("embedding gradient", {"native": own, **others})

    arrays = [normal(1 << 20) ** 2 for _ in range(4)]
    x, g, v, h = arrays
    own = optimizers.adam(x, g, v, h, x, v, h, rate=1e-3)
    others = {}
    if torch:
        parameter = torch.nn.Parameter(torch.from_numpy(x.copy()))
        parameter.grad = torch.from_numpy(g)
        others["torch"] = torch.optim.Adam([parameter], lr=1e-3, fused=True).step
    yield Case("adam 1 Mi", {"native": own, **others})


def _torch_pool(x: np.ndarray, y: np.ndarray, kind: str) -> dict[str, Run]:
    if torch is None:
        return {}
    found: dict[str, Run] = {}
    for name, form in (("torch", torch.contiguous_format), ("torch-nhwc", torch.channels_last)):
        tx, ty = (
            torch.from_numpy(v).permute(0, 3, 1, 2).contiguous(memory_format=form) for v in (x, y)
        )
        given = ((3, 3), (2, 2), (1, 1), (1, 1), False)
        _, at = torch.ops.aten.max_pool2d_with_indices(tx, *given)
        found[name] = lambda tx=tx, given=given: torch.ops.aten.max_pool2d_with_indices(tx, *given)
        if kind == "dx":
            back = torch.ops.aten.max_pool2d_with_indices_backward
            found[name] = lambda tx=tx, ty=ty, at=at, given=given, back=back: back(
                ty, tx, *given, at
            )
    return found


def best(case: Case, seconds: float) -> dict[str, float]:
    """The least processor time of one call, by library."""
    calls = {}
    for name, run in case.runs.items():
        run()
        start = time.process_time()
        run()
        calls[name] = max(1, int(2e-3 / max(time.process_time() - start, 1e-7)))
    least = dict.fromkeys(case.runs, float("inf"))
    end = time.process_time() + seconds
    while time.process_time() < end:
        for name, run in case.runs.items():
            start = time.process_time()
            for _ in range(calls[name]):
                run()
            least[name] = min(least[name], (time.process_time() - start) / calls[name])
    return least


def main() -> None:
    """Time the kernels whose name holds what is given."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("name", nargs="?", default="")
    arguments.add_argument("--seconds", type=float, default=1.0)
    arguments.add_argument("--instructions")
    given = arguments.parse_args()
    print(*library.status(), sep=", ")
    library.set_threads(1)
    with library.using(given.instructions):
        for case in itertools.chain(products(), winograds(), convolutions(), passes()):
            if given.name not in case.name:
                continue
            times = best(case, given.seconds)
            own = times.pop("native")
            rate = f"{case.flops / own / 1e9:7.1f} GF/s" if case.flops else ""
            ratios = "  ".join(f"/{name} {own / other:5.2f}" for name, other in times.items())
            print(f"{case.name:36} {own * 1e6:10.1f} us {rate}  {ratios}", flush=True)


if __name__ == "__main__":
    main()
