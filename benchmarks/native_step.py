"""A step on native kernels, on numpy's, and in PyTorch eager (channels last too), in seconds.

    python benchmarks/native_step.py [NAME…] [--threads 1] [--repeat 5] [--compile]

The networks are those of `stock_models` and `speed_models`, as PyTorch's exporter writes them.
Seconds are the least of runs taken in turn in one process: processor time on one thread, on several
those of a clock, after a pause in which the threads of the run before fall asleep.  Ratios are to
the faster of PyTorch eager's two, and `aim` is what the native one is to be at most, on one thread.
With `--compile` torch.compile runs, too, which needs a C++ compiler.  Gradients are compared first,
each with PyTorch's: the largest difference of one, relative to its norm, is printed.  Numbers below
the least normal float count as zero for all, as in the library; in PyTorch that is a switch.  The
last line says how much the machine did beside: the seconds of the whole by those of its processor.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ARGUMENTS = argparse.ArgumentParser(description=__doc__)
_ARGUMENTS.add_argument("names", nargs="*")
_ARGUMENTS.add_argument("--threads", type=int, default=1)
_ARGUMENTS.add_argument("--repeat", type=int, default=5)
_ARGUMENTS.add_argument("--compile", action="store_true")
GIVEN = _ARGUMENTS.parse_args()
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(GIVEN.threads))

import numpy as np
import torch
from speed_models import BARS, SUBJECTS
from stock_models import Subject, export

import gradtool as gt

Step = Callable[[], Any]
LEAST = 3.0  # seconds that the runs of a network take at least
PAUSE = 0.02  # seconds: OpenMP's threads keep a processor busy for a while after their work


def ours(path: Path, subject: Subject, kernels: Any) -> tuple[Step, Callable[[], Any]]:
    """A step of our executor, and its gradients."""
    axis = f"@axis={subject.axis}" if subject.axis != 1 else ""
    graph = gt.grad(gt.load(path), loss=f"ce:y{axis}", train_mode=True)
    session = gt.Session(graph, kernels=kernels)
    batch = {"x": subject.input(), "labels": subject.labels()}
    return lambda: session.step(batch, copy=False), lambda: session.step(batch).gradients


def theirs(
    subject: Subject, layout: torch.memory_format, *, compiled: bool = False
) -> tuple[Step, Callable[[], Any]]:
    """A step of PyTorch, and its gradients."""
    network, x = subject.network(), torch.from_numpy(subject.input())
    if x.ndim == 4:
        network, x = network.to(memory_format=layout), x.to(memory_format=layout)
    labels = torch.from_numpy(subject.labels())
    called: Any = torch.compile(network) if compiled else network

    def step() -> None:
        network.zero_grad(set_to_none=True)
        subject.loss(called, x, labels).backward()

    def gradients() -> dict[str, Any]:
        step()
        found = network.named_parameters()
        return {name: p.grad.contiguous().numpy() for name, p in found if p.grad is not None}

    return step, gradients


def difference(mine: dict[str, Any], theirs: dict[str, Any]) -> float:
    """The largest of any gradient that both have, relative to its norm."""
    whole = max(float(np.linalg.norm(g)) for g in theirs.values())
    worst = 0.0
    for name, g in theirs.items():
        if name in mine and mine[name].shape == g.shape:
            norm = max(float(np.linalg.norm(g)), 1e-3 * whole)
            worst = max(worst, float(np.linalg.norm(mine[name] - g)) / norm)
    return worst


def row(name: str, subject: Subject, scratch: Path) -> str:
    """Seconds and ratios of one network."""
    path = scratch / "model.onnx"
    export(subject, path)
    ways = {
        "native": ours(path, subject, "native"),
        "numpy": ours(path, subject, "numpy"),
        "eager": theirs(subject, torch.contiguous_format),
    }
    if len(subject.shape) == 4:
        ways["eager last"] = theirs(subject, torch.channels_last)
    if GIVEN.compile:
        ways["compiled"] = theirs(subject, torch.contiguous_format, compiled=True)
        ways["compiled"][0]()
    error = difference(ways["native"][1](), ways["eager"][1]())
    best = dict.fromkeys(ways, float("inf"))
    clock = time.process_time if GIVEN.threads == 1 else time.perf_counter
    began, turns = time.perf_counter(), 0
    while turns < GIVEN.repeat or time.perf_counter() - began < LEAST:
        turns += 1
        for way, (step, _) in ways.items():
            if GIVEN.threads > 1:
                time.sleep(PAUSE)
            start = clock()
            step()
            best[way] = min(best[way], clock() - start)
    fastest = min(seconds for way, seconds in best.items() if way.startswith("eager"))
    shown = "  ".join(f"{way} {1e3 * s:.3g} ms ({s / fastest:.2f})" for way, s in best.items())
    return f"{name:<10} aim {BARS[name]:.2f}  {shown}  difference {error:.1e}"


def main() -> int:
    """Measure and print."""
    torch.set_num_threads(GIVEN.threads)
    torch.set_flush_denormal(True)
    began, used = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        for name, subject in SUBJECTS.items():
            if not GIVEN.names or name in GIVEN.names:
                print(row(name, subject, Path(folder)), flush=True)
    whole, own = time.perf_counter() - began, time.process_time() - used
    print(f"{whole:.0f} s, of which its processors worked {own:.0f}: {whole / own:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
