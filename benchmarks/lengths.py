"""What streams of many sizes cost, beside steps of one size of our own, and PyTorch's eager ones.

    python benchmarks/lengths.py [--sizes 1 4 5 20 200] [--models lstm letters encoder] [--each 3]
        [--cpu]

A stream has batches of so many sizes, each `--each` times, in an order that is drawn.  `fixed` is
the sum of its steps at sizes that are bound already, the quickest of three each; `first` is the
first pass over the stream beside it, `after` a further one, `more` what the first step of a size
takes beyond a later one (the median), and `eager` a pass of PyTorch's in the same process, whose
first one is not counted.  LSTM and letters are the samples, on batches of 8, 9, … examples; the
encoder has 8 sequences of 8, 9, … tokens.  With `--cpu`, for machines that others use, seconds of
the process count.  Exit code 1: a pass after the first takes more than `LIMIT` times `fixed`.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch_eager import Eager

import gradtool as gt

sys.path.insert(0, str(Path(__file__).parents[1] / "samples"))
LIMIT = 1.1
FIRST = 8  # the smallest size
CLOCK = [time.perf_counter]
Batch = dict[str, Any]


def encoder() -> onnx.ModelProto:
    """`tokens` int64[8, length] → `logits` float[8, length, 256]; positions are not told apart."""
    import transformer
    from network import INT64, Network

    net = Network("encoder", seed=4)
    tokens = net.input("tokens", INT64, [8, "length"])
    net.output("logits", [8, "length", transformer.BYTES])
    table = net.weight("embed.weight", (transformer.BYTES, transformer.WIDTH), fan_in=1)
    x, mask = net.op("Gather", "embed", table, tokens), net.scalar("all", 0.0)
    for layer in range(transformer.LAYERS):
        x = transformer.decoder(net, f"layer{layer}", x, mask)
    shape = (transformer.WIDTH, transformer.BYTES)
    net.node("MatMul", "head", [x, net.weight("head.weight", shape, shape[0])], ["logits"])
    return net.model()


def model(name: str) -> onnx.ModelProto:
    """A forward model by name."""
    import lstm
    import transformer

    return {"lstm": lstm.model, "letters": transformer.model, "encoder": encoder}[name]()


def batch(proto: onnx.ModelProto, size: int, seed: int) -> Batch:
    """Tokens and labels of a size."""
    dims = proto.graph.input[0].type.tensor_type.shape.dim
    shape = tuple(size if dim.dim_param else dim.dim_value for dim in dims)
    draw = np.random.default_rng(seed)
    return {name: draw.integers(0, 100, shape) for name in ("tokens", "labels")}


def eager(proto: onnx.ModelProto) -> Callable[[Batch], object]:
    """A step of PyTorch: one call for each node, cross entropy, AdamW."""
    net = Eager(proto)
    weights = [v.requires_grad_() for v in net.values.values() if v.is_floating_point()]
    optimizer = torch.optim.AdamW(weights, lr=1e-4)

    def step(given: Batch) -> object:
        fed = net.tensors(given)
        optimizer.zero_grad()
        scores = net(fed)["logits"].flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(scores, fed["labels"].flatten())
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def taken(step: Callable[[Batch], object], batches: Sequence[Batch]) -> list[float]:
    """The seconds of each step."""
    found, now = [], CLOCK[0]
    for each in batches:
        start = now()
        step(each)
        found.append(now() - start)
    return found


def row(name: str, sizes: int, each: int) -> tuple[list[float], bool]:
    """`fixed` in ms, three ratios to it, ms `more`; and whether a later pass is over the limit."""
    proto = model(name)
    order = np.repeat(np.arange(FIRST, FIRST + sizes), each)
    np.random.default_rng(sizes).shuffle(order)
    batches = [batch(proto, int(size), number) for number, size in enumerate(order)]
    other = eager(proto)
    training = gt.grad(gt.load(proto), optimizer="adamw")
    with gt.Session(training) as session:

        def step(given: Batch) -> object:
            return session.step({**given, "lr": 1e-4}, copy=False).loss

        step(batch(proto, FIRST - 1, 0))
        gc.freeze()  # as the command line does
        first = taken(step, batches)
        after = min((taken(step, batches) for _ in range(2)), key=sum)
        quickest = {
            size: min(taken(step, 4 * [batches[list(order).index(size)]])[1:])
            for size in dict.fromkeys(order.tolist())
        }
    taken(other, batches[:2])
    fixed = sum(quickest[size] for size in order.tolist())
    firsts = {size: at for at, size in reversed(list(enumerate(order.tolist())))}
    more = statistics.median(first[at] - quickest[size] for size, at in firsts.items())
    ratios = [sum(passed) / fixed for passed in (first, after, taken(other, batches))]
    return [1e3 * fixed, *ratios, 1e3 * more], ratios[1] > LIMIT


def main() -> int:
    """Print a row for each model and number of sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 4, 5, 20, 200])
    parser.add_argument("--models", nargs="+", default=["lstm", "letters", "encoder"])
    parser.add_argument("--each", type=int, default=3)
    parser.add_argument("--cpu", action="store_true", help="seconds of the process, not the clock")
    asked = parser.parse_args()
    if asked.cpu:
        CLOCK[0] = time.process_time
    torch.set_num_threads(1)
    over = False
    print(f"{'model':<10}{'sizes':>6}{'fixed':>12}{'first':>8}{'after':>8}{'eager':>8}{'more':>10}")
    for name in asked.models:
        for sizes in asked.sizes:
            (fixed, first, after, beside, more), is_over = row(name, sizes, asked.each)
            over |= is_over
            print(
                f"{name:<10}{sizes:>6}{fixed:>9.1f} ms{first:>8.2f}{after:>8.2f}{beside:>8.2f}"
                f"{more:>7.1f} ms", flush=True,
            )  # fmt: skip
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
