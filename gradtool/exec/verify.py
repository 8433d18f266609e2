"""Independent checks of the gradients of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.errors import GradtoolError, UsageError
from gradtool.exec import differences, feeds
from gradtool.exec.device import open_device
from gradtool.exec.differences import Arrays
from gradtool.exec.executor import Executor
from gradtool.exec.ort_agreement import stock_onnxruntime
from gradtool.exec.parameters import parameters_of
from gradtool.exec.results import Result
from gradtool.exec.run import execute, planned
from gradtool.graph.training_info import TrainingInfo
from gradtool.operators.kernel_sets import Asked
from gradtool.passes.train_mode import at_random
from gradtool.passes.widen import widen
from gradtool.text.words import suggest
from gradtool.workloads.run_options import RunOptions

LEAVES = ("parameter", "constant", "input")  # what can be moved: no interior values
STEPS = (1e-4, 1e-5, 1e-6)  # a long step is exact where the loss is smooth, a short one at kinks
SLOPE_TOLERANCE = 1e-5
FLOAT32_TOLERANCE = 1e-2


def finite_differences(model: ir.Model, arrays: Arrays, result: Result) -> str:
    """Five-point differences of the loss in float64, along one random direction per value.

    Where a step crosses a kink (of a Relu, a maximum) the slope is off in proportion to the step,
    so shorter steps are tried; a wrong gradient disagrees at all of them.
    First the gradient in float64 against the slope, then the run's own against that gradient.

    Raises:
        GradtoolError: they disagree; the worst value is named.
    """
    if TrainingInfo.of(model).loss is None:
        raise UsageError("--verify finite-diff needs a loss; the graph has head gradients")
    if not result.gradients:
        raise UsageError(
            "--verify finite-diff needs gradients as outputs: leave --optimizer out, whose updates "
            "take their place"
        )
    wide = widen(model)
    inputs = {n: a.astype(np.float64) if "float" in a.dtype.name else a for n, a in arrays.items()}
    plan = planned(wide, feeds.sizes(wide, inputs))
    executor = Executor(plan, open_device("cpu"), parameters_of(wide))
    for name, array in feeds.require(wide, inputs, "inputs").items():
        executor.set_input(name, array)
    with np.errstate(all="ignore"):
        executor.step()
        exact = executor.gradients()
        worst, where = _worst_slope(executor, exact)
    if not worst <= SLOPE_TOLERANCE:
        raise GradtoolError(
            f"the gradient of {where!r} disagrees with finite differences (relative {worst:.1e})"
        )
    rounding, where = differences.worst(result.gradients, exact)
    if not rounding <= FLOAT32_TOLERANCE:
        raise GradtoolError(
            f"the gradient of {where!r} is off from float64 by {rounding:.1e} (relative)"
        )
    return (
        f"{differences.agree(len(exact), 'gradient')} with finite differences in float64 "
        f"(worst {worst:.1e}); rounding {rounding:.1e}"
    )


def _worst_slope(executor: Executor, exact: Arrays) -> tuple[float, str]:
    rng = np.random.default_rng(0)
    total = np.sqrt(sum(float(np.vdot(g, g)) for g in exact.values())) or 1.0
    worst, where = 0.0, ""
    leaves = {v.name: i for i, v in enumerate(executor.program.values) if v.kind in LEAVES}
    for name, gradient in exact.items():
        if name not in leaves:
            continue
        direction = np.asarray(rng.standard_normal(gradient.shape))
        direction /= max(float(np.linalg.norm(direction)), 1e-300)
        mine = float(np.vdot(gradient, direction))
        scale = float(np.linalg.norm(gradient)) + 1e-4 * total
        error = np.inf
        for step in STEPS:
            error = min(error, abs(_slope(executor, leaves[name], direction, step) - mine) / scale)
            if error <= SLOPE_TOLERANCE:
                break
        if not error <= worst:
            worst, where = error, name
    return worst, where


def _slope(executor: Executor, leaf: int, direction: np.ndarray[Any, Any], h: float) -> float:
    """The derivative of the loss along `direction`, by a five-point stencil."""
    executor.rewind()
    array = executor.value(leaf)
    start = array.copy()

    def loss(t: float) -> float:
        executor.rewind()
        np.copyto(array, start + t * direction)
        executor.step()
        assert executor.program.loss is not None  # noqa: S101 - checked by the caller
        return float(executor.value(executor.program.loss).reshape(-1)[0])

    slope = (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12 * h)
    np.copyto(array, start)
    return slope


def every_plan(model: ir.Model, arrays: Arrays, result: Result) -> str:
    """All plans of the graph, run: the same bits, in the memory planned.

    Raises:
        GradtoolError: a plan gives other bits, or takes other memory than planned.
    """
    from gradtool.exec import agreement

    return agreement.plans(model, arrays, result)


CHECKS: dict[str, Callable[[ir.Model, Arrays, Result], str]] = {
    "finite-diff": finite_differences,
    "ort": stock_onnxruntime,
    "plans": every_plan,
}


def checked(model: ir.Model, arrays: Arrays, by: str, kernels: Asked = "auto") -> str:
    """Run a model that is fed `arrays`, and check its gradients by one of `CHECKS`.

    Raises:
        GradtoolError: they disagree; the worst is named.
        UsageError: there is no such check, or the model draws at random.
        DeviceError: the kernels are native, and cannot be called here.
    """
    if by not in CHECKS:
        hint = suggest(by, CHECKS) or f"; there are {', '.join(CHECKS)}"
        raise UsageError(f"no check {by!r}{hint}")
    for warning in at_random(model):
        raise UsageError(f"a check compares runs, and this model's differ: {warning}")
    ran = execute(model, dict(arrays), RunOptions(kernels=kernels, copy=False))
    return CHECKS[by](model, arrays, ran)
