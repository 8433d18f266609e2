"""What `session.step` costs beyond the bound kernel calls and the copies of feeds and results.

    python benchmarks/session.py [MODEL.onnx INPUTS.npz …] [--optimizer NAME] [--repeat 200]

Without models, the samples.  Printed are the seconds of the first step, which plans and binds, and
the least of the repetitions of a step, of its bound calls alone, and of copies of feeds and results
alone.  What a step costs beyond is taken with calls that do nothing, where kernels do not blur it:
a step, less a loop over as many such calls and less the copies.  The closing line says whether that
is at most 20 µs everywhere; if not, the exit code is 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import gradtool as gt

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ("cnn", "transformer", "lstm")
ALLOWED = 20e-6


def timed(call: Callable[[], Any]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measured(model: Path, data: Path, optimizer: str, repeat: int) -> tuple[float, ...]:
    """Seconds of the first step, of a later one, of its calls, of its copies, and beyond."""
    with np.load(data) as loaded:
        batch = {name: loaded[name] for name in loaded.files}
    training = gt.grad(gt.load(model), optimizer=optimizer)
    with gt.Session(training) as session:
        first = timed(lambda: session.step(batch))
        binding = session._train.feed(batch)  # noqa: SLF001 - what a step is made of
        executor = binding.enter()
        places = [
            (inlet.target, batch[inlet.name]) for inlet in binding.inlets if inlet.name in batch
        ]
        result = session.step(batch, copy=False)
        results = [*result.outputs.values(), *result.gradients.values()]

        def calls() -> None:
            for call in executor.calls:
                call()

        def copies() -> None:
            for target, array in places:
                np.copyto(target, array)
            for array in results:
                array.copy()

        def step() -> None:
            session.step(batch)

        with np.errstate(all="ignore"):
            whole, alone, copied = least((step, calls, copies), repeat)
            executor.calls, executor.links = [_nothing] * len(executor.calls), None
            idle, loop = least((step, calls), 10 * repeat)
            copied = min(copied, *least((copies,), 10 * repeat))
    return first, whole, alone, copied, idle - loop - copied


def least(parts: Sequence[Callable[[], Any]], repeat: int) -> list[float]:
    """The least seconds that each part took, taken in turn."""
    found = [float("inf")] * len(parts)
    for _ in range(repeat):
        for index, part in enumerate(parts):
            found[index] = min(found[index], timed(part))
    return found


def _nothing() -> None:
    """A kernel that has nothing to do."""


def subjects(given: list[str]) -> Iterator[tuple[Path, Path]]:
    """Pairs of a model and its inputs."""
    if given:
        yield from zip(map(Path, given[::2]), map(Path, given[1::2]), strict=True)
        return
    for name in SAMPLES:
        model = ROOT / "samples" / f"{name}.onnx"
        yield model, model.with_suffix(".npz")


def main() -> int:
    """Print a row for each model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", metavar="MODEL INPUTS")
    parser.add_argument("--optimizer", default="none")
    parser.add_argument("--repeat", type=int, default=200)
    asked = parser.parse_args()
    print(f"{'model':<14}{'first':>12}{'step':>12}{'calls':>12}{'copies':>12}{'beyond':>12}")
    worst = 0.0
    for model, data in subjects(asked.files):
        found = measured(model, data, asked.optimizer, asked.repeat)
        worst = max(worst, found[-1])
        row = "".join(f"{1e6 * seconds:>9.1f} µs" for seconds in found)
        print(f"{model.stem:<14}{row}")
    verdict = "at most" if worst <= ALLOWED else "MORE THAN"
    print(
        f"a step costs {verdict} {1e6 * ALLOWED:.0f} µs beyond its calls and copies "
        f"(worst {1e6 * worst:.1f} µs)"
    )
    return int(worst > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
