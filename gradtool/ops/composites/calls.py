"""Composite calls in a model, and their replacement by bodies; `outline` is the way back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph import walk
from gradtool.graph.attributes import arguments
from gradtool.graph.composites import DOMAIN, named
from gradtool.graph.devices import place_like
from gradtool.graph.error_context import blamed
from gradtool.graph.metadata import CALL, CALLEE, GROUP, NOTES, SOURCE, STAGE
from gradtool.graph.names import label
from gradtool.graph.prune import drop
from gradtool.ops.composites.emission_cache import Stamps

_JSON = json.JSONEncoder(sort_keys=True)


def inline(model: ir.Model, *, in_pieces: bool = False) -> None:
    """Replace every composite call by its body, marked so that `outline` can undo it.

    With `in_pieces`, large elementwise bodies are computed a piece at a time.
    """
    expand(model, lambda _: False, mark=True, in_pieces=in_pieces)


def expand(
    model: ir.Model, keep: Callable[[str], bool], *, mark: bool = False, in_pieces: bool = False
) -> None:
    """Replace the composite calls whose name `keep` refuses by their bodies."""
    found = [n for n in walk.nodes(model.graph) if n.domain == DOMAIN]
    calls = [n for n in found if not keep(n.op_type)]
    remain = len(calls) < len(found)
    if calls:
        op = Builder(model)
        op.in_pieces = in_pieces
        replace(op, calls, mark=mark)
        remain = remain or any(n.domain == DOMAIN for n in op.emitted)
    if not remain:
        model.graph.opset_imports.pop(DOMAIN, None)


def replace(
    op: Builder, calls: Sequence[ir.Node], *, mark: bool = False
) -> dict[ir.Value, ir.Value]:
    """Put the bodies of composite calls in their place.

    Returns, by output of a call, the value that has its name and its readers now.
    """
    moved: dict[ir.Value, ir.Value] = {}
    stamps = Stamps(op)
    for node in calls:
        emitted = emit_body(op, node, stamps)
        kept = (*NOTES, GROUP)
        noted = {key: node.metadata_props[key] for key in kept if key in node.metadata_props}
        for inner in emitted if noted or node.device_configurations else ():
            inner.metadata_props.update(noted)
            place_like(inner, node, dict(zip(node.outputs, op.results, strict=False)))
        if mark:
            for inner in emitted:
                inner.metadata_props[CALL] = node.name or ""
            emitted[0].metadata_props[CALLEE] = describe(node)
        take_over(node.outputs, op.results)
        moved |= zip(node.outputs, op.results, strict=False)
    return_instead(moved)
    drop(calls)
    op.forget_sizes()
    return moved


def emit_body(op: Builder, node: ir.Node, stamps: Stamps | None = None) -> list[ir.Node]:
    """Emit the body of a call before it; `op.results` then holds its outputs.

    With `stamps`, a body that is like one before is stamped.
    """
    start = len(op.emitted)
    stage = node.metadata_props.get(STAGE, "forward")
    source = node.metadata_props.get(SOURCE, "")
    op.near = tuple(v for v in node.inputs if v is not None)
    with op.at(node, stage=stage, source=source, prefix=node.name or ""), op.arithmetic():
        by = partial(_results, op, node)
        found = by() if stamps is None else stamps.emit(node, node.inputs, by)
    op.results, op.near = tuple(v for v in found if v is not None), ()
    return op.emitted[start:]


def _results(op: Builder, node: ir.Node) -> list[ir.Value]:
    """Emit a body: its results, each a value of its own."""
    start = len(op.emitted)
    with blamed(lambda: label(node), "its definition"):
        made = named(node.op_type).body(op, *node.inputs, **arguments(node))
    made = (made,) if isinstance(made, ir.Value) else tuple(made)
    inner = set(op.emitted[start:])
    seen: list[ir.Value] = []
    for value in made:
        own = value.producer() in inner and value not in seen
        seen.append(value if own else op.Identity(value))
    return seen


def take_over(before: Sequence[ir.Value], after: Sequence[ir.Value]) -> None:
    """Let the values of `after` take over the names and the readers of `before`.

    Whatever graph returns the old ones still does: see `return_instead`.
    """
    for old, new in zip(before, after, strict=False):
        name, old.name = old.name, None
        new.name = name
        if old.dtype == new.dtype and old.shape is not None:
            new.shape = _known_sizes(old.shape, new.shape)
        old.shape = None  # nobody shall find a size here any more
        for node, slot in tuple(old.uses()):
            node.replace_input_with(slot, new)


def _known_sizes(old: ir.Shape, new: ir.Shape | None) -> ir.Shape:
    """The sizes of `old`, the open ones from `new` if known there."""
    if new is None or len(old) != len(new) or old.is_static():
        return old
    if not any(isinstance(b, int) > isinstance(a, int) for a, b in zip(old, new, strict=True)):
        return old
    return ir.Shape(b if isinstance(b, int) else a for a, b in zip(old, new, strict=True))


def return_instead(moved: Mapping[ir.Value, ir.Value]) -> None:
    """Let graphs return new values for old ones: one pass, however many outputs there are."""
    graphs = {v.graph for v in moved if v.is_graph_output()}
    for graph in graphs:
        assert isinstance(graph, ir.Graph)  # noqa: S101 - only graphs have outputs
        graph.outputs[:] = [moved.get(v, v) for v in graph.outputs]


def describe(node: ir.Node) -> str:
    """JSON description of a call, read back by `outline`."""
    return _JSON.encode(
        {
            "op": node.op_type,
            "inputs": [v.name if v is not None else "" for v in node.inputs],
            "outputs": [v.name for v in node.outputs],
            "attributes": arguments(node),
        }
    )


def inputs_of_call(node: ir.Node) -> list[str]:
    """The inputs of the call whose body begins with a node; none where no body does."""
    try:
        return [name for name in json.loads(node.metadata_props[CALLEE])["inputs"] if name]
    except (KeyError, TypeError, ValueError):
        return []


def is_inlined(model: ir.Model) -> bool:
    """Whether the graph holds bodies that `inline` marked."""
    return any(CALL in node.metadata_props for node in walk.nodes(model.graph))
