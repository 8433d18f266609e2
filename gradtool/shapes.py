"""Types and shapes of every value, by symbolic inference.

What a file declares about its intermediate values is discarded first: it may lie. Sizes are
integers or expressions in the symbols of the graph's inputs (`4*batch`); a size that depends on
data gets a symbol of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import onnx_ir as ir

from gradtool.errors import ModelError
from gradtool.graph import walk
from gradtool.sequence_rules import is_tensor, mark_empty

# Longer vectors hold data, not sizes.
MOST_ELEMENTS = 4096
_SILENT = logging.NullHandler()
METADATA = "pkg.onnx_shape_inference.sym_data"


@dataclass(frozen=True)
class Unknown:
    """An operator with outputs that have no inferred type or shape."""

    op: str
    nodes: int
    first_node: str


def infer(model: ir.Model) -> tuple[Unknown, ...]:
    """Give every value a type and a shape, in place, and return what could not be inferred.

    Raises:
        ModelError: a node cannot have the inputs that it has.
    """
    _erase(model)
    mark_empty(model)
    with _hidden(_unreadable(model)):
        _run(model)
        while _widen(model):
            _erase_outputs(model)  # what was found with the shapes that a loop starts with
            _run(model)
    _read_constants(model)
    return _unknown(model)


def strip(model: ir.Model) -> None:
    """Remove the notes that inference leaves on values."""
    for value in _values(model):
        value.metadata_props.pop(METADATA, None)


def _run(model: ir.Model) -> None:
    import onnx_shape_inference as library

    from gradtool import shape_rules

    logging.getLogger(library.__name__).addHandler(_SILENT)
    shape_rules.register()
    try:
        library.infer_symbolic_shapes(
            model, policy="override", warn_on_missing=False, adopt_declared_symbols=False
        )
    except (library.ShapeInferenceError, library.OpUsageError) as error:
        raise ModelError(_one_line(error)) from error
    except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
        raise ModelError(f"shapes cannot be inferred: {_one_line(error)}") from error


def _read_constants(model: ir.Model) -> None:
    """Give the outputs of Constant nodes their values, as initializers have theirs."""
    for node in walk.nodes(model.graph):
        if node.op_type == "Constant" and not node.domain:
            node.outputs[0].const_value = ir.convenience.get_const_tensor(node.outputs[0])


def _widen(model: ir.Model) -> bool:
    """Give a loop's carried value a symbol for each size that a turn of the loop changes.

    A loop body was inferred with the shapes that its values start with. Returns whether any
    changed, so that inference must run again.
    """
    changed = False
    for node in walk.nodes(model.graph):
        if node.op_type != "Loop" or node.domain:
            continue
        body = node.attributes["body"].as_graph()
        for before, after in zip(body.inputs[2:], body.outputs[1:], strict=False):
            shape = _widened(before, after)
            if shape is not None:
                before.shape = shape
                changed = True
    return changed


def _widened(before: ir.Value, after: ir.Value) -> ir.Shape | None:
    """The shape of a carried value where a turn of the loop changes it, else None."""
    if before.shape is None and not is_tensor(before):
        return after.shape
    if before.shape is None or after.shape is None or len(before.shape) != len(after.shape):
        return None
    own = [f"{before.name}_dim{axis}" for axis in range(len(before.shape))]
    dims = [
        size if size in (turned, name) else ir.SymbolicDim(name)
        for name, size, turned in zip(own, before.shape, after.shape, strict=True)
    ]
    return ir.Shape(dims) if dims != list(before.shape) else None


def _one_line(error: BaseException) -> str:
    cause = error.__cause__
    reason = f"{error}: {cause}" if cause is not None else str(error)
    return " ".join(reason.split())[:300]


def _values(model: ir.Model) -> Iterator[ir.Value]:
    """Inputs, initializers and node outputs of the graph and every graph in it."""
    for graph in walk.graphs(model.graph):
        yield from graph.inputs
        yield from graph.initializers.values()
    for node in walk.nodes(model.graph):
        yield from node.outputs


def _erase_outputs(model: ir.Model) -> None:
    for node in walk.nodes(model.graph):
        for output in node.outputs:
            output.shape = None
            output.type = None
            output.const_value = None
    strip(model)


def _erase(model: ir.Model) -> None:
    _erase_outputs(model)
    for node in walk.nodes(model.graph):
        if node.op_type in ("Loop", "Scan") and not node.domain:
            for value in node.attributes["body"].as_graph().inputs:
                value.shape = None
        if node.op_type == "Loop" and not node.domain:
            formal = node.attributes["body"].as_graph().inputs[:2]
            for value, dtype in zip(formal, (ir.DataType.INT64, ir.DataType.BOOL), strict=False):
                value.shape, value.type = ir.Shape([]), ir.TensorType(dtype)


def _unreadable(model: ir.Model) -> list[ir.Value]:
    """The initializers that inference must not try to read: absent, or too large to be sizes."""
    return [
        value
        for graph in walk.graphs(model.graph)
        for value in graph.initializers.values()
        if getattr(value.const_value, "absent", False)
        or (value.const_value is not None and value.const_value.size > MOST_ELEMENTS)
    ]


@contextmanager
def _hidden(values: list[ir.Value]) -> Iterator[None]:
    tensors = [value.const_value for value in values]
    for value in values:
        value.const_value = None
    try:
        yield
    finally:
        for value, tensor in zip(values, tensors, strict=True):
            value.const_value = tensor


def _unknown(model: ir.Model) -> tuple[Unknown, ...]:
    nodes: dict[str, list[ir.Node]] = {}
    for node in walk.nodes(model.graph):
        if any(output.name and not _known(output) for output in node.outputs):
            op = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            nodes.setdefault(op, []).append(node)
    return tuple(
        Unknown(op, len(found), found[0].name or found[0].outputs[0].name or "")
        for op, found in nodes.items()
    )


def _known(value: ir.Value) -> bool:
    if value.type is None:
        return False
    return not isinstance(value.type, ir.TensorType) or value.shape is not None
