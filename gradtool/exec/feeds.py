"""Inputs of a run: arrays by name, checked against the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool import io, shapes
from gradtool.errors import MissingData, UsageError
from gradtool.exec.array_interop import array_of, as_numpy, is_array
from gradtool.graph.metadata import ELEMENTS
from gradtool.graph.stages import is_backward
from gradtool.graph.training_info import TrainingInfo
from gradtool.io.solving import Known, solve
from gradtool.ops import kernels as kernel
from gradtool.text.words import some, suggest

Arrays = dict[str, np.ndarray[Any, Any]]
Given = Mapping[str, Any]


def fed(
    model: ir.Model, given: Given, source: str = "inputs", also: Iterable[str] = ()
) -> tuple[ir.Model, Arrays]:
    """A model holding the values given for its initializers, and the arrays for its inputs.

    Inputs come in their types; those that are not given are what they are without.  An input
    whose symbols its shape does not decide is fixed at that shape.  Names among `also`, and those
    of the step that the model is half of, are known and left out.  The model given is left as it
    is.

    Raises:
        MissingData: an input is absent, with the names that are there.
        UsageError: no input or initializer has such a name, or an array does not fit.
    """
    arrays = converted(model, given, source, also)
    takes = takers(model)
    model = with_values(model, {n: a for n, a in arrays.items() if takes[n].is_initializer()})
    arrays = require(model, _with_buffers(model, arrays), source)
    return _settled(model, arrays), arrays


def takers(model: ir.Model) -> dict[str, ir.Value]:
    """Inputs and initializers of a model by name."""
    return {v.name or "": v for v in (*model.graph.inputs[:], *model.graph.initializers.values())}


def converted(
    model: ir.Model, given: Given, source: str = "inputs", also: Iterable[str] = ()
) -> Arrays:
    """Given arrays in the types of the model; names among `also` are left out.

    So are inputs set to the same value before, and the ones that went with them.

    Raises:
        UsageError: no input or initializer has such a name, or an array has another type,
            or is not what its input was set to.
    """
    takes, info = takers(model), TrainingInfo.of(model)
    known = {*takes, *also, *info.fixed, *info.whole}
    unknown = [name for name in given if name not in known]
    if unknown:
        names = [v.name or "" for v in inputs_of(model)]
        nearest = suggest(unknown[0], takes)
        there = "" if nearest else f"; the model takes {some(names) or 'none'}"
        raise UsageError(f"{source}: no input or parameter {unknown[0]!r}{nearest}{there}")
    for name, value in info.fixed.items():
        if value is not None and name in given and np.any(as_numpy(array_of(given[name])) != value):
            raise UsageError(f"{source}: {name!r} is something else than the {value} it was set to")
    return {n: in_type_of(takes[n], given[n], source) for n in given if n in takes}


def inputs_of(model: ir.Model) -> list[ir.Value]:
    """The graph inputs without a default."""
    return [v for v in model.graph.inputs[:] if v.const_value is None]


def require(model: ir.Model, arrays: Given, source: str) -> Arrays:
    """The arrays for exactly the inputs of the model.

    Raises:
        MissingData: an input is absent, with the names that are there.
        UsageError: an array has another type than the model's input.
    """
    chosen: Arrays = {}
    for value in inputs_of(model):
        name = value.name or ""
        require_tensor(value)
        if name not in arrays:
            raise MissingData(f"{source}: no input {name!r}; it holds {some(arrays) or 'nothing'}")
        chosen[name] = in_type_of(value, arrays[name], source)
    return chosen


def require_tensor(value: ir.Value) -> None:
    """Refuse a sequence or an optional value: arrays are all that a caller gives."""
    if value.type is not None and not isinstance(value.type, ir.TensorType):
        kind = type(value.type).__name__.removesuffix("Type").lower()
        raise UsageError(f"input {value.name!r} is of the type {kind}; a run takes tensors only")


def sizes(model: ir.Model, arrays: Given) -> dict[str, int]:
    """The symbols that the shapes of given inputs decide.

    Raises:
        UsageError: two inputs disagree, or an array has another rank or size than the model's.
    """
    return solve(known for value in inputs_of(model) for known in _known(value, arrays))


def _known(value: ir.Value, arrays: Given) -> Iterable[Known]:
    array = arrays.get(value.name or "")
    if array is None or value.shape is None:
        return
    if array.ndim != len(value.shape):
        raise UsageError(
            f"input {value.name!r} has shape {list(array.shape)}, the model takes {value.shape}"
        )
    for axis, (dim, size) in enumerate(zip(value.shape, array.shape, strict=True)):
        if isinstance(dim, ir.SymbolicDim):
            yield Known(f"input {value.name!r}", axis, dim, size)
        elif dim != size:
            opens = f"; a forward file is opened by --batch {size}" if (axis, dim) == (0, 1) else ""
            raise UsageError(
                f"input {value.name!r} has size {size} on axis {axis}, the model takes {dim}{opens}"
            )


def defaults(model: ir.Model) -> Arrays:
    """Default values of scalar inputs."""
    known = TrainingInfo.of(model).defaults
    return {
        v.name or "": np.asarray(known[v.name or ""], v.dtype.numpy())
        for v in inputs_of(model) if v.name in known and v.dtype is not None
    }  # fmt: skip


def buffers(model: ir.Model) -> set[str]:
    """The inputs that gradients are added to."""
    return set(TrainingInfo.of(model).buffers.values())


def _with_buffers(model: ir.Model, arrays: Arrays) -> Arrays:
    """The given arrays, and defaults of the missing ones: zero, or a learning rate."""
    given = defaults(model) | arrays
    found = sizes(model, given)
    zero = buffers(model)
    for value in inputs_of(model):
        if value.name in zero and value.name not in given and value.dtype is not None:
            shape = _shape(value, found)
            if shape is None:
                raise MissingData(
                    f"no input {value.name!r}, and nothing tells the sizes of {value.shape}"
                )
            given[value.name] = np.zeros(shape, value.dtype.numpy())
    return given


def _shape(value: ir.Value, found: Mapping[str, int]) -> tuple[int, ...] | None:
    """The shape of an input with sizes given to symbols; None where one stays open."""
    if value.shape is None:
        return None
    shape = [d if isinstance(d, int) else d.evaluate(found) for d in value.shape]
    known = tuple(d for d in shape if isinstance(d, int))
    return known if len(known) == len(shape) else None


def in_type_of(value: ir.Value, given: Any, source: str) -> Any:
    """An array in the type of an input; numbers and lists of numbers take it, arrays have it.

    NumPy's files have no word for the narrow floats of ONNX, whose bits they keep, nor for text.
    """
    if not isinstance(value.type, ir.TensorType) or value.dtype is None:
        return given
    dtype = np.dtype(value.dtype.numpy())
    try:
        array = array_of(given)
    except ValueError as error:
        raise UsageError(f"{source}: {value.name!r} is no array ({error})") from error
    is_bits = array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize
    takes_type = not is_array(given) and np.can_cast(array.dtype, dtype, "same_kind")
    if array.dtype != dtype and is_bits:
        array = array.view(dtype)
    elif takes_type or (array.dtype.kind == "U" and dtype.kind == "O"):
        array = array.astype(dtype)
    if array.dtype != dtype:
        raise UsageError(
            f"{source}: input {value.name!r} is {array.dtype}, the model takes {dtype}"
        )
    return array


def with_values(model: ir.Model, arrays: Arrays) -> ir.Model:
    """A model whose initializers hold other arrays; itself if there is none.

    Raises:
        UsageError: an array has another shape, or the gradient was built upon the value.
    """
    if not arrays:
        return model
    meta, model = model.meta, model.clone()
    model.meta.update(meta)
    state = TrainingInfo.of(model).state
    again = False
    for name, array in arrays.items():
        value = model.graph.initializers[name]
        old = value.const_value
        sizes = list(old.shape) if old is not None else list(value.shape or ())
        if list(array.shape) != sizes:
            raise UsageError(f"{name!r} has shape {list(array.shape)}, the model takes {sizes}")
        if name not in state and decides(value, model):
            if any(map(is_backward, model.graph)) and not _holds(old, array):
                raise UsageError(
                    f"{name!r} decides sizes or axes, and this graph was made for the value that "
                    "it holds; load the forward model with another one"
                )
            again = True
        value.const_value = ir.Tensor(as_numpy(array), dtype=value.dtype, name=name)
    if again:
        shapes.infer(model)
    return model


def _holds(tensor: Any, array: np.ndarray[Any, Any]) -> bool:
    return tensor is not None and io.array(tensor).tobytes() == as_numpy(array).tobytes()


def decides(value: ir.Value, model: ir.Model) -> bool:
    """Whether sizes, axes or choices follow from a value: then a graph is made for it."""
    flag = value.dtype == ir.DataType.BOOL and not len(value.shape or ())
    return flag or any(_is_read_early(use.node, use.idx, model) for use in value.uses())


def _is_read_early(node: ir.Node, slot: int, model: ir.Model) -> bool:
    """Whether a node reads an input before the run: on the host, or to tell its outputs."""
    found = kernel.find(node.domain, node.op_type, model.graph.opset_imports.get(node.domain, 1))
    if found is None or slot in found.host:
        return True
    made = node.outputs
    return any(v.const_value is not None or ELEMENTS in v.metadata_props for v in made)


def _settled(model: ir.Model, arrays: Arrays) -> ir.Model:
    """The model, with inputs whose symbols no array decides fixed at the shape they are given."""
    found = sizes(model, arrays)
    names = {v.name for v in inputs_of(model) if v.shape is not None and _shape(v, found) is None}
    if not names:
        return model
    model = model.clone()
    for value in model.graph.inputs:
        if value.name in names:
            value.shape = ir.Shape(arrays[value.name or ""].shape)
    shapes.infer(model)
    return model
