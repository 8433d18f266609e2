"""Every plan of a training graph, run: the same bits, in the planned memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.errors import GradtoolError
from gradtool.exec import feeds
from gradtool.exec.results import Result, counted
from gradtool.exec.run import execute
from gradtool.operators.kernel_sets import LIBRARY
from gradtool.planning.pareto import requirements
from gradtool.workloads.names import KEEP, SEARCHED
from gradtool.workloads.planned import Planned
from gradtool.workloads.plans import workload, write
from gradtool.workloads.run_options import RunOptions
from gradtool.workloads.strategies import STRATEGIES
from gradtool.workloads.workload import Workload

Arrays = Mapping[str, np.ndarray[Any, Any]]

SMALL_CHANGE = 256 * 1024  # bytes that Python and numpy hold beside the arena, whatever the size


@dataclass(frozen=True)
class Agreement:
    """Memory of a plan's run with equal bits. Bytes.

    `planned` is the plan's peak, `arena` the peak of the written model planned anew, `high_water`
    the end of the last byte changed by a step (at least `least`), `outside` the bytes allocated
    beside the arena.
    """

    plan: str
    planned: int
    arena: int
    high_water: int
    outside: int
    least: int

    def problem(self, scratch: int) -> str:
        """The first deviation from the plan, or nothing."""
        if self.arena != self.planned:
            return f"planned {self.planned} bytes, the written model takes {self.arena}"
        if not self.least <= self.high_water <= self.planned:
            return f"planned {self.planned} bytes, the last byte used is {self.high_water}"
        allowed = self.planned // 100 + SMALL_CHANGE + scratch
        if self.outside > allowed:
            return f"{self.outside} bytes were allocated beside the arena"
        return ""


def check(
    work: Workload, found: Planned, arrays: Arrays, expected: Result, device: str = "cpu"
) -> Agreement:
    """Run the model of a plan, dead buffers overwritten, and compare it with a run of the original.

    The kernels are those that the plan was made for, and `expected` is from the same device.

    Raises:
        GradtoolError: a gradient or an output has other bits, or the memory is not as planned.
    """
    model = write(work, found)
    result = execute(
        model,
        arrays,
        RunOptions(device=device, kernels=work.kernels, measure=True, check_arena=True, copy=False),
    )
    for ours, theirs in (
        (result.gradients, expected.gradients),
        (result.outputs, expected.outputs),
    ):
        for name, array in theirs.items():
            if not _same(ours[name], array):
                raise GradtoolError(f"plan {found.name}: {name!r} has other bits than with keep")
    assert result.plan is not None and result.measurement is not None  # noqa: PT018, S101 - measured
    measured = result.measurement
    # The workspace of a native kernel has a part for each thread that there might be.
    agreement = Agreement(
        plan=found.name,
        planned=found.plan.peak,
        arena=result.plan.peak,
        high_water=measured.high_water,
        least=found.plan.peak - 63 if work.kernels not in LIBRARY else 0,
        outside=measured.outside - measured.dynamic,
    )
    problem = agreement.problem(result.plan.scratch)
    if problem:
        raise GradtoolError(f"plan {found.name}: {problem}")
    return agreement


def _same(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(_same, ours, theirs))
    return theirs is ours is None or np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()


def every_plan(
    model: ir.Model, arrays: Arrays, result: Result, names: Iterable[str] | None = None
) -> list[Agreement]:
    """Check all plans there are here, or the named ones, of the graph run for `result`.

    They run on its device.
    """
    kernels = "numpy" if result.plan is None else result.plan.program.kernels
    work = workload(model, feeds.sizes(model, arrays), kernels)
    said = requirements.lacking()
    chosen = names or [name for name in STRATEGIES if name not in SEARCHED or not said]
    on = result.device
    return [check(work, STRATEGIES[name](work), arrays, result, on) for name in chosen]


def plans(model: ir.Model, arrays: Arrays, result: Result) -> str:
    """`run --verify plans`: a line for people.

    Raises:
        GradtoolError: a plan gives other bits, or takes other memory than planned.
    """
    found = every_plan(model, arrays, result)
    others = ", ".join(a.plan for a in found if a.plan != KEEP)
    said = requirements.lacking()
    return (
        f"{counted(result)}: the same bits in {others} as in {KEEP}, "
        "and each plan takes the memory planned"
        f"{said and f' ({said})'}"
    )
