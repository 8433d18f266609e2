"""One test of ONNX's own node suite: its gradient against differences, and in onnxruntime.

The loss is Σ y·c with random c, over all float outputs, in float64. Inputs that are no floats are
constants, as in the files that exporters write.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from suite_gradients import agreement, differentiated, is_float, runner
from suite_models import Arrays, Test, prepared, tests

from gradtool.errors import NotDifferentiable
from gradtool.ops.composites.calls import inline
from gradtool.shapes.inference import register_shapes

NEWEST_OF_ONNXRUNTIME = 26
# Each runtime draws its own numbers: there it is enough that the graph runs.
RANDOM = ("Bernoulli", "Dropout", "RandomNormalLike", "RandomUniformLike")


@dataclass(frozen=True)
class Row:
    """What became of a test; `state` is agree, disagree, refused, constant or broken.

    `onnxruntime` is yes, absent (it has no such forward) or what went wrong.
    """

    name: str
    op: str
    state: str
    why: str = ""
    error: float = 0.0
    onnxruntime: str = ""


def examine(name: str) -> Row:
    """The row of one test."""
    warnings.simplefilter("ignore")
    register_shapes()
    test = tests()[name]
    with np.errstate(all="ignore"):
        try:
            state, why, error = agreement(test)
        except NotDifferentiable as refusal:
            return Row(name, test.op, "refused", str(refusal))
        except Exception as failure:  # noqa: BLE001 - whatever breaks is the row
            return Row(name, test.op, "broken", f"{type(failure).__name__}: {failure}"[:300])
        if state == "constant":
            return Row(name, test.op, state, why)
        try:
            verdict = _in_onnxruntime(test)
        except Exception as failure:  # noqa: BLE001
            verdict = f"{type(failure).__name__}: {failure}"[:300]
    return Row(name, test.op, state, why, error, verdict)


def _in_onnxruntime(test: Test) -> str:
    """Whether stock onnxruntime runs the written gradient graph, and gets what we get."""
    model, arrays = prepared(test, newest=NEWEST_OF_ONNXRUNTIME)
    try:
        outputs = _stock(model, arrays)
    except Exception as failure:  # noqa: BLE001
        return f"absent: {str(failure).splitlines()[0][:200]}"
    for name, value in outputs.items():
        expected = test.outputs.get(name, value)
        if test.op not in RANDOM and not _close(value, expected):
            return f"absent: its own {name} is not what the standard expects"
    model = model.clone()
    _, seeds = differentiated(model, {k: np.shape(v) for k, v in outputs.items()})
    rng = np.random.default_rng(7)
    arrays = arrays | {
        s: rng.uniform(0.5, 1.5, outputs[n].shape).astype(outputs[n].dtype)
        for n, s in seeds.items()
    }
    ours = runner(model)(arrays)
    inline(model)
    theirs = _stock(model, arrays)
    for value in model.graph.outputs:
        name = value.name or ""
        if not is_float(value) or test.op in RANDOM:
            continue
        if not _close(ours[name], theirs[name]):
            mine, other = (np.asarray(a[name], np.float64) for a in (ours, theirs))
            return f"{name} differs by {np.nanmax(np.abs(mine - other)):.1e}"
    return "yes"


def _close(mine: Any, other: Any) -> bool:
    """Equal up to the rounding of the type, measured by the largest element."""
    other = np.asarray(other)
    if np.shape(mine) != other.shape:
        return False
    if other.dtype.kind in "OUS" or not np.size(other):
        return bool(np.all(mine == other))
    coarse = other.dtype.itemsize < 4
    a, b = np.asarray(mine, np.float64), np.asarray(other, np.float64)
    largest = max(1.0, float(np.max(np.abs(b), where=np.isfinite(b), initial=0.0)))
    rtol, atol = (2e-2, 1e-2 * largest) if coarse else (1e-3, 1e-4 * largest)
    return bool(np.all(np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)))


def _stock(model: ir.Model, arrays: Arrays) -> dict[str, Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    proto = ir.to_proto(model)
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    wanted = {i.name for i in session.get_inputs()}
    names = [o.name for o in session.get_outputs()]
    made = session.run(None, {k: v for k, v in arrays.items() if k in wanted})
    return dict(zip(names, made, strict=True))
