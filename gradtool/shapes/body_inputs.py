"""Types and shapes of inputs of bodies: those of their arguments, whatever the file declares.

Inference takes a body to be given its node's initial values.  If the arguments turn out to be
others, the inputs of the body are corrected and inference runs again.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from gradtool.graph import walk
from gradtool.graph.predicates import is_tensor

Dims = list[int | ir.SymbolicDim]
_FED = ("Loop", "Scan", "SequenceMap")


def forget(model: ir.Model) -> None:
    """Discard the file's declarations for inputs of bodies; a turn and a condition are known."""
    for node, body in _bodies(model):
        for value in body.inputs:
            value.shape = None
        if node.op_type == "Loop":
            dtypes = (ir.DataType.INT64, ir.DataType.BOOL)
            for value, dtype in zip(body.inputs, dtypes, strict=False):
                value.shape, value.type = ir.Shape([]), ir.TensorType(dtype)


def refresh(model: ir.Model) -> None:
    """Discard shapes to be inferred again, perhaps with other symbols."""
    for node, body in _bodies(model):
        if node.op_type != "SequenceMap":
            first = 2 if node.op_type == "Loop" else 0
            for formal, start in zip(body.inputs[first:], node.inputs[first:], strict=False):
                if start is not None and start.shape is not None and not _varies(formal):
                    formal.shape = None


def correct(model: ir.Model) -> bool:
    """Give bodies the types and shapes of their arguments; return whether any changed.

    A value carried by a loop has a symbol of its own for each size that a turn changes.
    """
    known = frozenset(s for v in model.graph.inputs for d in v.shape or () for s in _symbols(d))
    found = list(_given(model, known))  # all of it as inference left it
    changed = [_set(formal, kind, dims) for formal, kind, dims in found]
    return any(changed)


def _given(
    model: ir.Model, known: frozenset[str]
) -> Iterator[tuple[ir.Value, ir.TypeProtocol | None, Dims | None]]:
    """The inputs of bodies, each with its proper type and shape."""
    for node, body in _bodies(model):
        if node.op_type == "Loop":
            for formal, start, result in zip(
                body.inputs[2:], node.inputs[2:], body.outputs[1:], strict=False
            ):
                kind = None if start is None else start.type
                yield formal, kind, _carried(formal, start, result, known)
        elif node.op_type == "SequenceMap":
            for formal, given in zip(body.inputs, node.inputs, strict=False):
                if given is not None:
                    shape = given.shape
                    dims = None if shape is None else _lasting(formal, shape, known)
                    yield formal, _element(given), dims


def _bodies(model: ir.Model) -> Iterator[tuple[ir.Node, ir.Graph]]:
    for node in walk.nodes(model.graph):
        if node.op_type in _FED and not node.domain:
            yield node, node.attributes["body"].as_graph()


def _element(value: ir.Value) -> ir.TypeProtocol | None:
    """The type of the elements of a sequence; that of a tensor is its own."""
    if isinstance(value.type, ir.SequenceType):
        element: ir.TypeProtocol = value.type.elem_type
        return element
    return value.type


def _set(formal: ir.Value, kind: ir.TypeProtocol | None, dims: Dims | None) -> bool:
    """Give a value a type and a shape, as far as they are known; whether they are new."""
    other_type = kind is not None and kind != formal.type
    other_shape = dims is not None and (formal.shape is None or list(formal.shape) != dims)
    if other_type:
        formal.type = kind
    if other_shape and dims is not None:
        formal.shape = ir.Shape(dims)
    return other_type or other_shape


def _carried(
    formal: ir.Value, start: ir.Value | None, result: ir.Value, known: frozenset[str]
) -> Dims | None:
    """The shape of a carried value, by its initial one and the one after a turn."""
    turned, first = result.shape, None if start is None else start.shape
    if turned is None:
        return None
    if formal.shape is None:
        return None if is_tensor(formal) else _lasting(formal, turned, known)
    first = formal.shape if first is None else first
    if not len(formal.shape) == len(turned) == len(first):
        return None
    sizes = zip(_own(formal), formal.shape, first, turned, strict=True)
    return [
        size if size == name or size == begun == after else ir.SymbolicDim(name)
        for name, size, begun, after in sizes
    ]


def _lasting(formal: ir.Value, shape: ir.Shape, known: frozenset[str]) -> Dims:
    """A shape whose symbols mean the same in the next inference."""
    return [
        size if _symbols(size) <= known else ir.SymbolicDim(name)
        for name, size in zip(_own_names(formal, len(shape)), shape, strict=True)
    ]


def _own(formal: ir.Value) -> list[str]:
    return _own_names(formal, len(formal.shape or ()))


def _own_names(formal: ir.Value, rank: int) -> list[str]:
    return [f"{formal.name}_dim{axis}" for axis in range(rank)]


def _varies(formal: ir.Value) -> bool:
    """Whether the shape has a symbol of the value's own."""
    shape = formal.shape or ()
    return any(size == name for size, name in zip(shape, _own(formal), strict=True))


def _symbols(size: int | ir.SymbolicDim) -> frozenset[str]:
    if isinstance(size, int) or size.value is None:
        return frozenset()
    return frozenset(size.free_symbols())
