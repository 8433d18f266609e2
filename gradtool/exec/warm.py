"""The seconds of each step of a plan, once the machine is warm."""

from __future__ import annotations

import statistics
import time

import numpy as np

from gradtool.exec.executor import Executor

WARM = 0.25  # seconds of steps before any is measured
LEAST = 2  # of these steps


def warm_seconds(executor: Executor, repeats: int) -> tuple[float, ...]:
    """The median seconds of each step over `repeats` runs, after runs that nobody measures.

    The first steps of a process meet memory that was never touched, cold caches and a processor at
    its idle clock, which would show as kernels that are slow: steps run for `WARM` seconds before.
    """
    with np.errstate(all="ignore"):
        executor.step()
        begun, count = time.perf_counter(), 0
        while count < LEAST or time.perf_counter() - begun < WARM:
            _seconds(executor)
            count += 1
        runs = [_seconds(executor) for _ in range(max(repeats, 1))]
    return tuple(statistics.median(each) for each in zip(*runs, strict=True))


def _seconds(executor: Executor) -> list[float]:
    """The seconds of each step, waiting for the device after each."""
    executor.rewind()
    executor.device.synchronize()
    taken = []
    for call in executor.calls:
        start = time.perf_counter()
        call()
        executor.device.synchronize()
        taken.append(time.perf_counter() - start)
    return taken
