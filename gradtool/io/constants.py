"""Inputs given a value at loading: constants from then on, without dead branches.

A sampling rate or a switch such as `use_cache_branch` decides sizes and branches that nothing else
tells.  The file stays as it is: training writes its weights into the original, inputs and all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.graph import branches
from gradtool.graph.names import Names
from gradtool.graph.predicates import is_used
from gradtool.graph.prune import prune
from gradtool.graph.training_info import TrainingInfo, record
from gradtool.io.solving import Known
from gradtool.shapes import infer
from gradtool.text.words import count, suggest

MOST = 64  # elements: more are data
_WORDS = {"true": True, "false": False, "1": True, "0": False}

Array = np.ndarray[Any, Any]


def settle(model: ir.Model, values: Mapping[str, object]) -> list[Known]:
    """Make constants of inputs, in place; returns the open sizes told by their shapes.

    An If whose condition is known then is its branch; nodes, weights and inputs that nothing reads
    any more are gone.  The model notes the values, and the inputs that went with them as null.

    Raises:
        UsageError: there is no such input, or it cannot have that value.
        ModelError: a node cannot have the inputs that it has.
    """
    read = [value for value in model.graph.inputs if is_used(value)] if values else []
    sizes: list[Known] = []
    noted = dict(TrainingInfo.of(model).fixed)
    for name, given in values.items():
        value = _input(model, name)
        array = _array(value, given)
        sizes += _sizes(value, array.shape)
        noted[name] = array.tolist()
        _replace(model, value, array)
    if values:
        infer(model)
        branches.take(model)
        prune(model)
        record(model, fixed=noted)
        leave_out(model, [v for v in read if v.name not in values])
    return sizes


def leave_out(model: ir.Model, read: Sequence[ir.Value]) -> list[str]:
    """Remove those of the inputs `read` before that nothing reads any more, and note them."""
    gone = [value for value in read if not is_used(value)]
    for value in gone:
        model.graph.inputs.remove(value)
        model.graph.initializers.pop(value.name or "", None)
    if gone:
        noted = dict.fromkeys(value.name or "" for value in gone)
        record(model, fixed={**TrainingInfo.of(model).fixed, **noted})
    return [value.name or "" for value in gone]


def _input(model: ir.Model, name: str) -> ir.Value:
    inputs = {value.name: value for value in model.graph.inputs if value.name}
    if name in inputs and name not in TrainingInfo.of(model).defaults:
        return inputs[name]
    if name in inputs:
        raise UsageError(f"--set {name}: a number of the training step, which a run is given")
    if name in model.graph.initializers:
        raise UsageError(f"--set {name}: a tensor that the file holds, not an input")
    listed = ", ".join(inputs) or "none"
    raise UsageError(f"--set {name}: no such input{suggest(name, inputs)}; inputs: {listed}")


def _array(value: ir.Value, given: object) -> Array:
    """The given value as an array of an input's type and shape."""
    where = f"--set {value.name}"
    if not isinstance(value.type, ir.TensorType) or value.dtype in (None, ir.DataType.STRING):
        raise UsageError(f"{where}: only tensors of numbers can be given a value")
    numbers = _texts(given, where) if isinstance(given, str) else np.asarray(given)
    if numbers.size > MOST:
        raise UsageError(
            f"{where}: {numbers.size} numbers, the most are {MOST}: feed the input instead"
        )
    assert value.dtype is not None  # noqa: S101 - checked above
    if numbers.size > 1 and value.dtype.is_floating_point():
        raise UsageError(f"{where}: {numbers.size} floats are data: feed the input instead")
    elements = [_number(each, value.dtype, where) for each in numbers.reshape(-1).tolist()]
    array = np.array(elements).astype(value.dtype.numpy()).reshape(numbers.shape)
    return array.reshape(_shape(value, array, where))


def _texts(given: str, where: str) -> Array:
    """The parts of a text: one is a scalar, several or those in brackets a vector."""
    inner = given[1:-1] if given.startswith("[") and given.endswith("]") else given
    parts = [part.strip() for part in inner.split(",")] if inner.strip() else []
    if not all(parts):
        raise UsageError(f"{where}: {given!r} is no number, nor several with commas between")
    found = np.array(parts, object)
    return found.reshape(()) if inner == given and len(parts) == 1 else found


def _number(given: object, dtype: ir.DataType, where: str) -> bool | int | float:
    """One element in a type. Raises UsageError where the type has no such number."""
    try:
        found = _read(given, dtype)
        if found is not None and math.isfinite(found):
            held = np.array(found).astype(dtype.numpy()).item()
            if dtype.is_floating_point() or held == found:
                return found
    except (ValueError, OverflowError):
        pass
    kind = "bool: true or false" if dtype == ir.DataType.BOOL else dtype.name.lower()
    raise UsageError(f"{where}: {given} is not a value of {kind}")


def _read(given: object, dtype: ir.DataType) -> bool | int | float | None:
    """A text or a number as a number of a type; None if it is of another kind."""
    if dtype == ir.DataType.BOOL:
        return _WORDS.get(given.lower()) if isinstance(given, str) else _as(given, bool)
    if dtype.is_floating_point():
        return float(given) if isinstance(given, str) else _as(given, int, float)
    return int(given) if isinstance(given, str) else _as(given, int)


def _as(given: object, *kinds: type) -> Any:
    """A number as it is, if it is of one of the kinds: a bool is no int here."""
    return given if type(given) in kinds else None


def _shape(value: ir.Value, array: Array, where: str) -> tuple[int, ...]:
    """The shape of an array as an input: one number, or as many as there are, fit any."""
    if value.shape is None:
        return tuple(array.shape)
    wanted = tuple(dim if isinstance(dim, int) else 1 for dim in value.shape)
    if math.prod(wanted) == array.size and (array.ndim == 0 or value.shape.is_static()):
        return wanted
    fits = len(wanted) == array.ndim and all(
        size in (dim, 0) or not isinstance(dim, int)
        for dim, size in zip(value.shape, array.shape, strict=True)
    )
    if not fits:
        raise UsageError(
            f"{where}: {count(array.size, 'number')} for an input of shape {value.shape}"
        )
    return tuple(array.shape)


def _sizes(value: ir.Value, shape: Sequence[int]) -> list[Known]:
    dims = enumerate(zip(value.shape or (), shape, strict=False))
    return [
        Known(f"--set {value.name}", axis, dim, size)
        for axis, (dim, size) in dims
        if isinstance(dim, ir.SymbolicDim) and dim.value is not None
    ]


def _replace(model: ir.Model, value: ir.Value, array: Array) -> None:
    """Replace an input by a Constant node."""
    graph = model.graph
    tensor = ir.Tensor(array, dtype=value.dtype, name=value.name)
    name, names = value.name or "", Names.of(model)
    node = ir.Node(
        "", "Constant", [], [ir.AttrTensor("value", tensor)], name=names.fresh(f"{name}/set")
    )
    made = node.outputs[0]
    made.type, made.shape, made.const_value = value.type, ir.Shape(array.shape), tensor
    ir.convenience.replace_all_uses_with(value, made, replace_graph_outputs=True)
    graph.inputs.remove(value)
    graph.initializers.pop(name, None)
    made.name = name
    if len(graph):
        graph.insert_before(graph[0], node)
    else:
        graph.append(node)
