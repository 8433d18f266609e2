"""Declarations of a file: types hold, sizes are hints, and inference decides."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx_ir as ir

from gradtool.errors import ModelError
from gradtool.graph import walk
from gradtool.graph.limits import Limits
from gradtool.graph.metadata import PREFIX
from gradtool.io import walk as protos
from gradtool.shapes import limits as shape_limits

Declared = tuple[tuple[ir.Value, ir.DataType | None, ir.Shape | None], ...]


def open_sizes(model: onnx.ModelProto) -> tuple[str, ...]:
    """Leave invalid declared sizes open, in place; returns a line for each input.

    Exporters write -1 for a size that is not known, and 0 for that of an empty example: an input's
    0 is open as well, but in a file of ours, where somebody gave it.
    """
    shapes = [(shape, False) for shape in protos.shapes(model, inputs=False)]
    held = {tensor.name for tensor in model.graph.initializer}
    ours = any(entry.key.startswith(PREFIX) for entry in model.metadata_props)
    said = []
    for value in model.graph.input:
        given = value.name not in held and not ours
        found = list(protos.type_shapes(value.type))
        shapes += [(shape, given) for shape in found]
        zeros = [n for s in found for n, dim in enumerate(s.dim) if _is_zero(dim)] if given else []
        said += [f"input {value.name!r} declares size 0 on axis {n}: taken as open" for n in zeros]
    for shape, given in shapes:
        for dim in shape.dim:
            if dim.dim_value == -1 or (given and _is_zero(dim)):
                dim.ClearField("value")
    return tuple(said)


def _is_zero(dim: onnx.TensorShapeProto.Dimension) -> bool:
    return dim.HasField("dim_value") and dim.dim_value == 0


def passed_on(model: onnx.ModelProto) -> tuple[str, ...]:
    """Give outputs that are inputs the types of these, in place; a line for each of another shape.

    Raises:
        ModelError: such an output is declared with another type.
    """
    inputs = {value.name: value for value in model.graph.input}
    otherwise = []
    for output in model.graph.output:
        value = inputs.get(output.name)
        if value is None:
            continue
        kind, shape = _type(value)
        said, hint = _type(output)
        if said not in (None, kind):
            raise ModelError(f"input {value.name!r} is {kind}, and declared {said} as an output")
        if shape is not None and hint is not None and _contradict(hint, shape):
            otherwise.append(
                f"value {value.name!r} is declared {hint} as an output and has shape {shape}"
            )
        output.type.CopyFrom(value.type)
    return tuple(otherwise)


def _type(value: onnx.ValueInfoProto) -> tuple[ir.TypeProtocol | None, ir.Shape | None]:
    serde = ir.serde
    kind = serde.deserialize_type_proto_for_type(value.type)
    return kind, serde.deserialize_type_proto_for_shape(value.type)


def collect(model: ir.Model) -> Declared:
    """The file's declarations of the results of nodes; inference replaces them.

    Not the shapes of a branch's results: TorchScript declares those of the other branch.
    """
    returned = {value for branch in _branches(model) for value in branch.outputs}
    return tuple(
        (output, output.dtype, None if output in returned else output.shape)
        for output in _written(model)
        if output.type is not None or output.shape is not None
    )


def check(model: ir.Model, said: Declared, limits: Limits) -> tuple[str, ...]:
    """A line for each value of another shape than its file declares: a hint, which runtimes ignore.

    Raises:
        ModelError: naming the value of another type than its file declares, or the input that
            cannot be held.
    """
    otherwise = []
    for value, dtype, shape in said:
        if None not in (dtype, value.dtype) and dtype != value.dtype:
            raise ModelError(f"value {value.name!r} is declared {dtype} and is {value.dtype}")
        if shape is not None and value.shape is not None and _contradict(shape, value.shape):
            otherwise.append(
                f"value {value.name!r} is declared {shape} and has shape {value.shape}"
            )
    for value in model.graph.inputs:
        problem = shape_limits.broken(value, limits)
        if problem is not None:
            raise ModelError(f"input {value.name!r} {problem}")
    return tuple(otherwise)


def _contradict(first: ir.Shape, second: ir.Shape) -> bool:
    return len(first) != len(second) or any(
        isinstance(a, int) and isinstance(b, int) and a != b
        for a, b in zip(first, second, strict=True)
    )


def _branches(model: ir.Model) -> Iterator[ir.Graph]:
    ifs = (node for node in walk.nodes(model.graph) if node.op_type == "If")
    return (branch for node in ifs for branch in walk.subgraphs(node))


def _written(model: ir.Model) -> Iterator[ir.Value]:
    return (output for node in walk.nodes(model.graph) for output in node.outputs)
