"""`run --verify ort`: the same graph in stock onnxruntime, and the rounding of both.

A graph that amplifies rounding may differ from ours as ours does from float64.  Where a Relu or a
maximum is at its kink, as at a zero or a tie, rounding decides which gradient it has: right ones
agree at a point beside, wrong ones do so nowhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.errors import GradtoolError
from gradtool.exec import feeds
from gradtool.exec.differences import Arrays, agree, results, worst
from gradtool.exec.results import Result
from gradtool.exec.run import execute
from gradtool.graph.tensors import array
from gradtool.passes.widen import widen
from gradtool.workloads.run_options import RunOptions

TOLERANCE = 3e-4
AMPLIFIED = 30  # times what our own rounding is,
ROUGHEST = {"float16": 1e-2, "bfloat16": 1e-2}  # of which so much counts at most,
_ROUGHEST = 1e-3  # in other types
MOVES = (1e-3, 1e-2, 1e-2)  # of the root mean square of an array
_LEAST = 1e-2  # such a mean, of what is zero


def stock_onnxruntime(model: ir.Model, arrays: Arrays, result: Result) -> str:
    """Compare a run with one in stock onnxruntime.

    Raises:
        GradtoolError: a gradient, or an output where there is none, disagrees by more than
            rounding, also beside kinks; the worst is named.
    """
    what, mine = results(result)
    agreed = f"{agree(len(mine), what.removesuffix('s'))} with stock onnxruntime"
    apart, where = worst(_theirs(model, arrays, mine), mine)
    if apart <= TOLERANCE:
        return f"{agreed} (worst {apart:.1e})"
    rounding = _rounding(model, arrays, mine)
    if apart <= TOLERANCE + AMPLIFIED * rounding:
        return f"{agreed} (worst {apart:.1e}, as rounding is {rounding:.1e})"
    for seed, move in enumerate(MOVES):
        beside, fed = moved(model, arrays, mine, move, seed)
        kernels = "numpy" if result.plan is None else result.plan.program.kernels
        ran = execute(
            beside, dict(fed), RunOptions(device=result.device, kernels=kernels, copy=False)
        )
        ours = {name: results(ran)[1][name] for name in mine}
        found, _ = worst(_theirs(beside, fed, ours), ours)
        if found <= TOLERANCE + AMPLIFIED * _rounding(beside, fed, ours):
            return (
                f"{agreed} (worst {found:.1e}) where inputs and parameters are moved by {move:g}; "
                "as they are, rounding decides at a kink"
            )
    named = f"the gradient of {where!r}" if what == "gradients" else repr(where)
    raise GradtoolError(f"{named} differs from onnxruntime's by {apart:.1e} (relative)")


def _theirs(model: ir.Model, arrays: Arrays, names: Arrays) -> Arrays:
    """Results of a model by onnxruntime, of some names."""
    from gradtool.exec import ort
    from gradtool.program.bind_dims import bound

    ran = ort.execute(bound(model, feeds.sizes(model, arrays)), arrays)
    everything = {**ran.outputs, **ran.gradients}
    return {name: everything[name] for name in names}


def _rounding(model: ir.Model, arrays: Arrays, mine: Arrays) -> float:
    """Error of results against float64; 0 where nothing tells."""
    wide = widen(model)
    fed = {n: a.astype(np.float64) if _is_float(a) else a for n, a in arrays.items()}
    try:
        exact = results(execute(wide, fed, RunOptions(copy=False)))[1]
    except GradtoolError:
        return 0.0
    common = {name: each for name, each in exact.items() if name in mine}
    found, _ = worst(mine, common)
    most = max((ROUGHEST.get(each.dtype.name, _ROUGHEST) for each in mine.values()), default=0.0)
    return min(found, most) if np.isfinite(found) else 0.0


def moved(
    model: ir.Model, arrays: Arrays, trained: Arrays, by: float, seed: int
) -> tuple[ir.Model, Arrays]:
    """A model and inputs near by: floats among the inputs, and parameters with a result."""
    rng = np.random.default_rng(seed)

    def beside(found: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        scale = max(float(np.sqrt(np.mean(np.square(found, dtype=np.float64)))), _LEAST)
        made = found.astype(np.float64) + by * scale * rng.standard_normal(found.shape)
        near: np.ndarray[Any, Any] = made.astype(found.dtype)
        return near

    held = model.graph.initializers
    weights = {n: array(v.const_value) for n in trained
               if (v := held.get(n)) is not None and v.const_value is not None}  # fmt: skip
    made = feeds.with_values(model, {n: beside(a) for n, a in weights.items() if _is_float(a)})
    return made, {n: beside(a) if _is_float(a) and a.size else a for n, a in arrays.items()}


def _is_float(found: np.ndarray[Any, Any]) -> bool:
    return "float" in found.dtype.name
