"""Measured costs of each step of a plan, of a warm machine: seconds, and bytes beside the arena."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.exec import feeds
from gradtool.exec.device import open_device
from gradtool.exec.executor import Executor
from gradtool.exec.machine_peak import reach
from gradtool.exec.memory_meter import beside
from gradtool.exec.parameters import parameters_of
from gradtool.exec.run import require, sized_and_planned
from gradtool.operators.kernel_sets import Kernels
from gradtool.planning.plan import Plan
from gradtool.program.profile import REPEATS
from gradtool.program.roofline import Reach

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


@dataclass(frozen=True)
class StepCosts:
    """One entry a step of `plan`: its seconds, the median over `repeats` runs, and `outside`.

    `outside` are the bytes that Python and numpy, on a CUDA device CuPy there, held beside the
    arena while the step ran, beyond what they held before the first.  `reach` is what the
    processor can do; None of a device.
    """

    plan: Plan
    seconds: tuple[float, ...]
    outside: tuple[int, ...]
    repeats: int
    reach: Reach | None = None


def step_costs(
    model: ir.Model,
    arrays: Mapping[str, np.ndarray[Any, Any]],
    *,
    device: str = "cpu",
    kernels: Kernels = "numpy",
    repeats: int = REPEATS,
) -> StepCosts:
    """Run a training graph a few times, once it is warm, and measure each step.

    Raises:
        MissingData: an input or a weight is absent.
    """
    opened = open_device(device)
    kernels = require(kernels, opened)
    plan = sized_and_planned(model, feeds.sizes(model, arrays), kernels=kernels)[1]
    executor = Executor(plan, opened, parameters_of(model))
    for name, array in feeds.require(model, arrays, "inputs").items():
        executor.set_input(name, array)
    seconds = warm_seconds(executor, repeats)
    with np.errstate(all="ignore"):
        outside = _outside(executor)
    found = reach(kernels) if executor.device.xp is np else None
    return StepCosts(plan, seconds, outside, max(repeats, 1), found)


def _outside(executor: Executor) -> tuple[int, ...]:
    """The most bytes allocated beside the arena during each step."""
    executor.rewind()
    most = []
    with beside(executor.device) as meter:
        before = meter.held
        for call in executor.calls:
            meter.restart()
            call()
            most.append(max(meter.most - before, 0))
    return tuple(most)
