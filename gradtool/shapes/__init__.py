"""Types and shapes of every value, by symbolic inference.

Types and shapes that a file declares for intermediate values are discarded first: it may lie.
Results of operators without a rule are the exception: there is nothing else to go by.  Sizes are
integers or expressions in the symbols of the graph's inputs (`4*batch`); a size that depends on
data gets a symbol of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import onnx_ir as ir

from gradtool.errors import ModelError
from gradtool.graph import walk
from gradtool.graph.limits import MOST_ELEMENTS
from gradtool.graph.metadata import ELEMENTS, PLACE, notes
from gradtool.graph.predicates import is_tensor
from gradtool.graph.tensors import elements
from gradtool.graph.training_info import TrainingInfo
from gradtool.shapes import body_inputs
from gradtool.shapes.sequences import mark_empty

_SILENT = logging.NullHandler()
STANDARD = ("", "ai.onnx", "ai.onnx.ml")


@dataclass(frozen=True)
class Unknown:
    """An operator whose outputs have no inferred type or shape."""

    op: str
    nodes: int
    first_node: str


def infer(model: ir.Model) -> tuple[Unknown, ...]:
    """Give every value a type and a shape, in place, and return the operators left unknown.

    Raises:
        ModelError: a node cannot have the inputs that it has.
    """
    _erase_outputs(model)
    body_inputs.forget(model)
    mark_empty(model)
    with hidden(_unreadable(model)) as tensors:
        while not _settled(model, tensors):
            _erase_outputs(model)
            body_inputs.refresh(model)
    _read_constants(model)
    return _unknown(model)


def is_declared(node: ir.Node) -> bool:
    """Whether an output's shape is the file's declaration alone: its operator has no shape rule."""
    from onnx_shape_inference import registry

    return node.domain not in STANDARD and not registry.has(node.domain, node.op_type)


def _settled(model: ir.Model, hidden: Mapping[ir.Value, ir.TensorProtocol]) -> bool:
    """Infer once; whether the arguments of bodies were as assumed."""
    try:
        _run(model, hidden)
    except ModelError:
        if body_inputs.correct(model):
            return False
        raise
    return not body_inputs.correct(model)


def strip(model: ir.Model) -> None:
    """Remove the notes of inference on values, and the names of open sizes inside.

    Of two open sizes that are broadcast, inference takes one to be the result: onnxruntime believes
    such names where it shares memory.  It finds those that follow by itself; of operators that are
    not ONNX's nobody else knows them.
    """
    known: dict[int, tuple[ir.Shape, ir.Shape]] = {}  # by identity, which the first keeps
    for graph, nodes in walk.by_graph(model.graph):
        _unnote(graph.inputs)
        _unnote(graph.initializers.values())
        for node in nodes:
            _unnote(node.outputs)
            for value in node.outputs if node.domain in STANDARD else ():
                shape = value.shape
                if shape is None or value.is_graph_output():
                    continue
                if id(shape) not in known:
                    known[id(shape)] = shape, _nameless(shape)
                value.shape = known[id(shape)][1]


def _unnote(values: Iterable[ir.Value]) -> None:
    """Remove the notes of inference on values."""
    for value in values:
        if ELEMENTS in notes(value):
            del value.metadata_props[ELEMENTS]


def _nameless(shape: ir.Shape) -> ir.Shape:
    """A shape without the names of its open sizes, one for all values of that shape."""
    if shape.is_static():
        return shape
    return ir.Shape([d if isinstance(d, int) or _is_place(d) else None for d in shape], frozen=True)


def _is_place(size: ir.SymbolicDim) -> bool:
    """Whether a size has a name needed by the file (see `open_sizes`)."""
    return size.value is not None and size.value.startswith(PLACE)


def _run(model: ir.Model, hidden: Mapping[ir.Value, ir.TensorProtocol]) -> None:
    import onnx_shape_inference as library

    from gradtool.shapes import folding
    from gradtool.shapes import rules as shape_rules

    logging.getLogger(library.__name__).addHandler(_SILENT)
    shape_rules.register()
    try:
        with folding.folded(folding.Folding(model, hidden)):
            library.infer_symbolic_shapes(
                model, policy="override", warn_on_missing=False, adopt_declared_symbols=False
            )
    except (library.ShapeInferenceError, library.OpUsageError) as error:
        cause = error.__cause__
        raise (cause if isinstance(cause, ModelError) else ModelError(_one_line(error))) from error
    except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
        raise ModelError(f"shapes cannot be inferred: {_one_line(error)}") from error


def _read_constants(model: ir.Model) -> None:
    """Give the outputs of Constant nodes their values, as initializers have theirs."""
    for node in walk.nodes(model.graph):
        if node.op_type == "Constant" and not node.domain:
            node.outputs[0].const_value = ir.convenience.get_const_tensor(node.outputs[0])


def _one_line(error: BaseException) -> str:
    cause = error.__cause__
    reason = f"{error}: {cause}" if cause is not None else str(error)
    return " ".join(reason.split())[:300]


def _erase_outputs(model: ir.Model) -> None:
    for node in walk.nodes(model.graph):
        if is_declared(node):
            continue
        for output in node.outputs:
            output.shape = None
            output.type = None
            output.const_value = None
    strip(model)


def _unreadable(model: ir.Model) -> list[ir.Value]:
    """The initializers hidden from inference: absent, too large to be sizes, or changing."""
    changing = TrainingInfo.of(model).changing
    return [
        value
        for graph in walk.graphs(model.graph)
        for value in graph.initializers.values()
        if getattr(value.const_value, "absent", False)
        or (graph is model.graph and value.name in changing)
        or (value.const_value is not None and elements(value.const_value) > MOST_ELEMENTS)
    ]


@contextmanager
def hidden(values: Sequence[ir.Value]) -> Iterator[Mapping[ir.Value, ir.TensorProtocol]]:
    """Hide the tensors of these values meanwhile; yield them by value."""
    tensors = [value.const_value for value in values]
    for value in values:
        value.const_value = None
    try:
        yield {v: tensor for v, tensor in zip(values, tensors, strict=True) if tensor is not None}
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
    return not is_tensor(value) or value.shape is not None
