"""One test of ONNX's own node suite: its gradient against differences, and in onnxruntime.

The loss is Σ y·c with random c, over all float outputs, in float64. Inputs that are no floats are
constants, as in the files that exporters write.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from gradtool import io, shapes
from gradtool.builder import Builder
from gradtool.errors import GradtoolError, NotDifferentiable
from gradtool.exec.device import Device
from gradtool.exec.executor import Executor
from gradtool.exec.run import parameters_of
from gradtool.flatten import flatten
from gradtool.functions.calls import inline, register_shapes
from gradtool.passes.backward import differentiate
from gradtool.passes.training_forms import prepare
from gradtool.passes.widen import NARROW, WIDE, widen
from gradtool.planning.keep import keep

Arrays = dict[str, np.ndarray[Any, Any]]
FLOATS = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
FLOATS |= {onnx.TensorProto.DOUBLE}
STEP = 1e-3
TOLERANCE = 1e-6
NEWEST_OF_ONNXRUNTIME = 26

# Float inputs that say what shape or which numbers are wanted: no data flows from them.
SETTINGS = {"Resize": (1, 2), "Upsample": (1,), "Dropout": (1,), "NonMaxSuppression": (2, 3, 4)}


@dataclass(frozen=True)
class Test:
    """A single-operator model, its node, and the arrays for its inputs."""

    name: str
    model: onnx.ModelProto
    inputs: tuple[Any, ...]

    @property
    def op(self) -> str:
        """The operator, with its domain unless it is the standard one."""
        node = self.model.graph.node[0]
        return f"{node.domain}::{node.op_type}" if node.domain else node.op_type


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


@cache
def tests() -> dict[str, Test]:
    """The tests of one node with at least one float input (alone, in a sequence or optional)."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    return {
        t.name: Test(t.name, t.model, tuple(t.data_sets[0][0]))
        for t in found
        if t.model is not None and len(t.model.graph.node) == 1 and _has_float(t.model)
    }


def _has_float(model: onnx.ModelProto) -> bool:
    return any(_element(v.type) in FLOATS for v in model.graph.input)


def _element(kind: onnx.TypeProto) -> int:
    name = kind.WhichOneof("value")
    if name in ("sequence_type", "optional_type"):
        return _element(getattr(kind, name).elem_type)
    return int(kind.tensor_type.elem_type)


def examine(name: str) -> Row:
    """The row of one test."""
    warnings.simplefilter("ignore")
    register_shapes()
    test = tests()[name]
    with np.errstate(all="ignore"):
        try:
            state, why, error = _agreement(test)
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


# ------------------------------------------------------------------- the two graphs


def _prepared(test: Test, *, newest: int | None = None) -> tuple[ir.Model, Arrays]:
    """The model at an opset that rules know, what is no float made constant, and its inputs."""
    proto = onnx.ModelProto()
    proto.CopyFrom(test.model)
    given = dict(zip((v.name for v in proto.graph.input), test.inputs, strict=False))
    settings = SETTINGS.get(test.op, ())
    slots = {n: i for i, n in enumerate(proto.graph.node[0].input)}
    for value in list(proto.graph.input):
        array = given[value.name]
        if not isinstance(array, np.ndarray):
            continue
        if _element(value.type) not in FLOATS or slots[value.name] in settings:
            if value.type.tensor_type.elem_type != onnx.TensorProto.STRING:
                tensor = onnx.numpy_helper.from_array(array, value.name)
                tensor.data_type = value.type.tensor_type.elem_type
                proto.graph.initializer.append(tensor)
                proto.graph.input.remove(value)
                del given[value.name]
        else:
            dims = value.type.tensor_type.shape.dim
            for dim, size in zip(dims, array.shape, strict=True):
                dim.dim_value = size
    proto.ir_version = max(proto.ir_version, 4)
    _pin_randomness(proto)
    if newest is not None:
        _lower(proto, newest)
    model = io.from_proto(proto)
    shapes.infer(model)
    return model, given


def _pin_randomness(proto: onnx.ModelProto) -> None:
    """Give generators a seed, so that each run draws the same."""
    node = proto.graph.node[0]
    if "seed" in onnx.defs.get_schema(node.op_type, domain=node.domain).attributes:
        if not any(a.name == "seed" for a in node.attribute):
            value = 3 if node.op_type == "Dropout" and proto.opset_import[0].version >= 12 else 3.0
            node.attribute.append(onnx.helper.make_attribute("seed", value))


def _lower(proto: onnx.ModelProto, newest: int) -> None:
    """Stamp a model with the newest opset that its operator already had, if that is `newest`."""
    node = proto.graph.node[0]
    for entry in proto.opset_import:
        if entry.domain == node.domain == "" and entry.version > newest:
            since = onnx.defs.get_schema(node.op_type, entry.version).since_version
            entry.version = max(newest, since)
            proto.ir_version = min(proto.ir_version, 13)


def _differentiated(
    model: ir.Model, shapes_of: Mapping[str, tuple[int, ...]]
) -> tuple[dict[str, str], dict[str, str]]:
    """Append gradients: by input, the name of its gradient; by output, of its coefficient c."""
    wrt = [v for v in model.graph.inputs if _is_float(v)]
    op = Builder(model)
    prepare(model, op)
    heads, seeds = {}, {}
    for value in [v for v in model.graph.outputs if _is_float(v)]:
        size = ir.Shape(shapes_of[value.name or ""])
        seed = ir.Value(name=f"c_{value.name}", shape=size, type=value.type)
        model.graph.inputs.append(seed)
        heads[value], seeds[value.name or ""] = seed, seed.name or ""
    made = differentiate(op, heads, wrt)
    names = {}
    for value, gradient in made.gradients.items():
        result = op.Identity(gradient)
        model.graph.outputs.append(result)
        names[value.name or ""] = result.name or ""
    return names, seeds


def _is_float(value: ir.Value) -> bool:
    return value.dtype in (*NARROW, WIDE)


def _runner(model: ir.Model) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A function from inputs to outputs, by name, on our kernels."""
    executor = Executor(keep(flatten(model)), Device("cpu", np), parameters_of(model))
    known = {v.name for v in model.graph.inputs}
    numbers = dict(
        zip((v.name or "" for v in model.graph.outputs), executor.program.outputs, strict=True)
    )

    def run(arrays: Mapping[str, Any]) -> dict[str, Any]:
        for name, array in arrays.items():
            if name in known:
                executor.set_input(name, array)
        executor.step()
        return {name: executor.result(number) for name, number in numbers.items()}

    return run


# -------------------------------------------------------------- finite differences


def _agreement(test: Test) -> tuple[str, str, float]:
    """Whether gradients agree with differences, and the largest relative error."""
    narrow, arrays = _prepared(test)
    model = widen(narrow)
    inputs = {v.name: v for v in model.graph.inputs}
    arrays = {k: _wide(a) if _is_float(inputs[k]) else a for k, a in arrays.items()}
    if not any(_is_float(v) for v in inputs.values()):
        return "constant", "no float input is data", 0.0
    if not any(_is_float(v) for v in model.graph.outputs):
        if any(isinstance(v.type, ir.TensorType) for v in model.graph.outputs):
            return "constant", "no output is a float", 0.0
    forward = _runner(model.clone())
    outputs = forward(arrays)
    backward = model.clone()
    names, seeds = _differentiated(backward, {k: np.shape(v) for k, v in outputs.items()})
    if not seeds:
        return "constant", "no output is a float", 0.0
    gradients = _runner(backward)
    for attempt in range(4):
        moved = _moved(arrays, names, attempt)
        outputs = forward(moved)
        rng = np.random.default_rng(7)
        c = {
            s: np.where(np.isfinite(outputs[n]), rng.uniform(0.5, 1.5, outputs[n].shape), 0.0)
            for n, s in seeds.items()
        }
        found = gradients(moved | c)
        weights = {n: c[s] for n, s in seeds.items()}
        errors = [
            _difference(forward, moved, weights, name, found[gradient])
            for name, gradient in names.items()
        ]
        if None not in errors:
            break
    else:
        return "disagree", "no smooth point was found", np.inf
    worst = max(e for e in errors if e is not None)
    where = "" if not attempt else "away from the test's own numbers, where it has a kink"
    return ("agree" if worst < TOLERANCE else "disagree"), where, worst


def _wide(array: Any) -> Any:
    return array.astype(np.float64) if isinstance(array, np.ndarray) else array


def _moved(arrays: Arrays, names: Mapping[str, str], attempt: int) -> Arrays:
    """The arrays themselves at first, then each element a little elsewhere."""
    if not attempt:
        return arrays
    rng = np.random.default_rng(attempt)
    return arrays | {
        k: arrays[k] + rng.uniform(0.02, 0.2, arrays[k].shape) * rng.choice([-1, 1], arrays[k].shape)
        for k in names
    }


def _difference(
    forward: Callable[[Mapping[str, Any]], dict[str, Any]],
    arrays: Arrays,
    weights: Mapping[str, Any],
    name: str,
    gradient: Any,
) -> float | None:
    """The relative error along a random direction; None where the loss has a kink."""
    rng = np.random.default_rng(11)
    x = arrays[name]
    direction = np.where(np.isfinite(x), rng.uniform(-1, 1, x.shape), 0.0)

    def loss(t: float) -> float:
        made = forward(arrays | {name: x + t * direction})
        return float(sum(np.sum(made[n] * w, where=w != 0) for n, w in weights.items()))

    def slope(h: float) -> float:
        return (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12 * h)

    mine = float(np.sum(gradient * direction, where=direction != 0))
    middle = loss(0.0)
    scale = np.linalg.norm(gradient) * np.linalg.norm(direction) + abs(middle) * 1e-3 + 1e-9
    slopes = [slope(h) for h in (STEP, STEP / 4)]
    errors = [abs(mine - s) / scale for s in slopes]
    if min(errors) < TOLERANCE:
        return min(errors)
    sides = [(loss(s * STEP / 8) - middle) / (s * STEP / 8) for s in (1, -1)]
    smooth = abs(slopes[0] - slopes[1]) < 1e-5 * scale and abs(sides[0] - sides[1]) < 0.05 * scale
    return min(errors) if smooth else None


# ---------------------------------------------------------------- stock onnxruntime


def _in_onnxruntime(test: Test) -> str:
    """Whether stock onnxruntime runs the written gradient graph, and gets what we get."""
    model, arrays = _prepared(test, newest=NEWEST_OF_ONNXRUNTIME)
    try:
        outputs = _stock(model, arrays)
    except Exception as failure:  # noqa: BLE001
        return f"absent: {str(failure).splitlines()[0][:200]}"
    model = model.clone()
    _, seeds = _differentiated(model, {k: np.shape(v) for k, v in outputs.items()})
    rng = np.random.default_rng(7)
    arrays = arrays | {
        s: rng.uniform(0.5, 1.5, outputs[n].shape).astype(outputs[n].dtype)
        for n, s in seeds.items()
    }
    ours = _runner(model)(arrays)
    inline(model)
    theirs = _stock(model, arrays)
    for value in model.graph.outputs:
        name = value.name or ""
        if not _is_float(value):
            continue
        coarse = value.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
        mine, other = (np.asarray(a[name], np.float64) for a in (ours, theirs))
        close = np.isclose(mine, other, rtol=2e-2 if coarse else 1e-3, atol=1e-2 if coarse else 1e-4)
        if not np.all(close | (np.isnan(mine) & np.isnan(other))):
            return f"{name} differs by {np.nanmax(np.abs(mine - other)):.1e}"
    return "yes"


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


__all__ = ["FLOATS", "GradtoolError", "Row", "Test", "examine", "tests"]
