"""What training costs beyond its bound steps, in time and in memory.

    python benchmarks/training.py time [--steps 40] [--rounds 5]
    python benchmarks/training.py memory [--steps 1000]
    python benchmarks/training.py folder [--size 4GiB]

`time`: processor seconds of the calls that are bound for a step, and what a step of `gt.Trainer`
costs beyond them, taken with calls that do nothing: reading, shuffling, looking at and feeding the
batch in its thread, the journal, hearing of the step; no checkpoint.  At most 2 % of a step of
10 ms or more.

`memory`: the bytes that Python and numpy hold in 95 of 100 steps or more, the arena among them,
against the plan.  At most 1.01 times as many, 256 KiB and two batches: the one that is
worked on, and the one that is ready.

`folder`: the most anonymous memory of a process that trains once through a folder of `.npy` files
of that size, sparse on the disk.  At most 200 MiB.

The exit code is 1 where a limit is exceeded.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.lib.format import write_array_header_1_0
from onnx import helper, numpy_helper

import gradtool as gt
from gradtool.exec.process_memory import resident
from gradtool.text.units import parse_bytes
from gradtool.training.callbacks import Watcher

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
np.random.default_rng()  # imported now, so that no row counts it
BATCH = {"cnn": 8, "transformer": 16, "lstm": 32}
AXIS = {"lstm": 1}
FIXED = ("cnn", "transformer")  # those whose sizes tell the axis of the examples
SLOW = 10e-3  # seconds
LIMIT = 1.02
WIDTH = 1 << 16  # numbers of an example: 256 KiB
MOST = 200 << 20
STRINGS = 200_000


class After(Watcher):
    """Calls a function before the first step, and after each."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call

    def begun(self, *_: Any) -> None:
        self.call()

    def stepped(self, *_: Any) -> None:
        self.call()


def examples(name: str, count: int) -> dict[str, Any]:
    """The examples of a sample, repeated until there are `count`."""
    with np.load(SAMPLES / f"{name}.npz") as found:
        axis = AXIS.get(name, 0)
        return {n: np.take(a, np.arange(count) % a.shape[axis], axis) for n, a in found.items()}


def bound(name: str, repeat: int) -> float:
    """Processor seconds of the calls of a step."""
    batch, times = examples(name, BATCH[name]), []
    with gt.Session(gt.grad(gt.load(SAMPLES / f"{name}.onnx"), optimizer="adamw")) as session:
        session.step(batch)
        calls = session._train.feed(batch).enter().calls  # noqa: SLF001 - what a step is made of
        with np.errstate(all="ignore"):
            for _ in range(repeat):
                start = time.process_time()
                for call in calls:
                    call()
                times.append(time.process_time() - start)
    return min(times)


def beyond(name: str, steps: int) -> float:
    """Processor seconds of a step of a training whose calls do nothing."""
    begun: list[float] = []

    def look() -> None:
        if not begun:
            executor = trainer.session._train.feed(batch).enter()  # noqa: SLF001 - as above
            executor.calls = [_nothing] * len(executor.calls)
        begun.append(time.process_time())

    batch = examples(name, BATCH[name])
    how = {"batch": BATCH[name], "steps": steps, "checkpoint_every": 2 * steps}
    with (
        tempfile.TemporaryDirectory() as run,
        gt.Trainer(SAMPLES / f"{name}.onnx", **how) as trainer,
    ):
        trainer.fit(examples(name, 16 * BATCH[name]), run=run, watcher=After(look))
    return (begun[-1] - begun[0]) / steps


def _nothing() -> None:
    """A kernel that has nothing to do."""


def show_time(steps: int, rounds: int) -> bool:
    """Print a row for each sample; whether one is over the limit."""
    print(f"{'model':<14}{'bound step':>14}{'beyond':>14}{'ratio':>10}")
    over = False
    for name in BATCH:
        alone = bound(name, steps)
        more = min(beyond(name, 10 * steps) for _ in range(rounds))
        ratio = (alone + more) / alone
        over |= alone >= SLOW and ratio > LIMIT
        print(f"{name:<14}{1e3 * alone:>11.2f} ms{1e6 * more:>11.1f} µs{ratio:>10.4f}")
    return over


def held(model: Path, data: Any, **options: Any) -> tuple[int, int]:
    """The bytes that a training holds in all but a few of its steps, and those planned.

    The few are those in which the interpreter rebuilds its table of strings, which is much larger
    than a step of ours; strings that are made before make it rebuild the one that was there.
    Collecting garbage empties its free lists, which nobody holds.
    """
    peaks: list[int] = []

    def look() -> None:
        if peaks:
            peaks.append(tracemalloc.get_traced_memory()[1])
        gc.collect()
        if not peaks:
            gc.freeze()
            peaks.append(tracemalloc.get_traced_memory()[0] - trainer.session.arena_bytes)
        tracemalloc.reset_peak()

    with gt.Trainer(model, **options | {"steps": 2}) as trainer:
        trainer.fit(data)
    with tempfile.TemporaryDirectory() as run, gt.Trainer(model, **options) as trainer:
        tracemalloc.start()
        try:
            for number in range(STRINGS):
                sys.intern(f"string {number}")
            trainer.fit(data, run=run, watcher=After(look))
        finally:
            tracemalloc.stop()
            gc.unfreeze()
        before, *steps = peaks
        return sorted(steps)[len(steps) * 95 // 100] - before, trainer.session.arena_bytes


def show_memory(steps: int) -> bool:
    """Print a row for each sample; whether one is over the limit."""
    print(f"{'model':<14}{'planned':>14}{'measured':>14}{'limit':>14}")
    over = False
    with tempfile.TemporaryDirectory() as folder:
        for name in FIXED:
            batch = BATCH[name]
            path = Path(folder) / f"{name}.onnx"
            gt.save(gt.load(SAMPLES / f"{name}.onnx", batch=batch), path)
            data = examples(name, 4 * batch)
            most, planned = held(path, data, batch=batch, steps=steps, lr=1e-6)
            waiting = sum(array.nbytes for array in data.values()) // 2
            limit = planned * 101 // 100 + (256 << 10) + waiting
            over |= most > limit
            print(f"{name:<14}{planned:>14}{most:>14}{limit:>14}")
    return over


def wide(path: Path) -> None:
    """Write a model of examples of 256 KiB."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    sizes = {"x": ["batch", WIDTH], "y": ["batch", 4]}
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in sizes.items())
    w = numpy_helper.from_array(np.ones((WIDTH, 4), np.float32), "w")
    graph = helper.make_graph(nodes, "wide", [x], [y], [w])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(made, path)


def sparse(path: Path, shape: tuple[int, ...], dtype: str) -> None:
    """Write a `.npy` file of zeros that takes no place on the disk."""
    kind = np.dtype(dtype)
    header = {"descr": kind.str, "fortran_order": False, "shape": shape}
    with path.open("wb") as file:
        write_array_header_1_0(file, header)
        file.truncate(file.tell() + kind.itemsize * int(np.prod(shape)))


def show_folder(size: int) -> bool:
    """Train through a folder; whether it took more than the limit."""
    count = size // (4 * WIDTH)
    most = [0]

    def look() -> None:
        found = resident()
        most[0] = max(most[0], found.anonymous if found else 0)

    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "data"
        folder.mkdir()
        wide(Path(made) / "wide.onnx")
        sparse(folder / "x.npy", (count, WIDTH), "f4")
        sparse(folder / "labels.npy", (count,), "i8")
        with gt.Trainer(Path(made) / "wide.onnx", batch=32, optimizer="sgd") as trainer:
            history = trainer.fit(folder, watcher=After(look))
    print(
        f"{size / 2**30:.2f} GiB in {history.step} steps: {most[0] / 2**20:.0f} MiB of anonymous "
        f"memory (limit {MOST >> 20} MiB)"
    )
    return most[0] > MOST


def main() -> int:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = parser.add_subparsers(dest="what", required=True)
    timing = parts.add_parser("time")
    timing.add_argument("--steps", type=int, default=40)
    timing.add_argument("--rounds", type=int, default=5)
    parts.add_parser("memory").add_argument("--steps", type=int, default=1000)
    parts.add_parser("folder").add_argument("--size", default="4GiB")
    asked = parser.parse_args()
    if asked.what == "time":
        return int(show_time(asked.steps, asked.rounds))
    if asked.what == "memory":
        return int(show_memory(asked.steps))
    return int(show_folder(parse_bytes(asked.size)))


if __name__ == "__main__":
    sys.exit(main())
