"""What a file declares about the values that nodes write, against what inference finds."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from gradtool.errors import ModelError
from gradtool.graph import walk
from gradtool.graph.limits import Limits
from gradtool.shapes import limits as shape_limits

Declared = tuple[tuple[ir.Value, ir.DataType | None, ir.Shape | None], ...]


def collect(model: ir.Model) -> Declared:
    """What the file says of the values that nodes write; inference replaces it.

    Not the shapes of what a branch returns: TorchScript declares those of the other branch.
    """
    returned = {value for branch in _branches(model) for value in branch.outputs}
    return tuple(
        (output, output.dtype, None if output in returned else output.shape)
        for output in _written(model)
        if output.type is not None or output.shape is not None
    )


def check(model: ir.Model, said: Declared, limits: Limits) -> None:
    """Refuse a model that contradicts what it declares, or whose inputs cannot be held.

    Raises:
        ModelError: naming the value.
    """
    for value, dtype, shape in said:
        if None not in (dtype, value.dtype) and dtype != value.dtype:
            raise ModelError(f"value {value.name!r} is declared {dtype} and is {value.dtype}")
        if shape is not None and value.shape is not None and _contradict(shape, value.shape):
            raise ModelError(
                f"value {value.name!r} is declared {shape} and has shape {value.shape}"
            )
    for value in model.graph.inputs:
        problem = shape_limits.broken(value, limits)
        if problem is not None:
            raise ModelError(f"input {value.name!r} {problem}")


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
