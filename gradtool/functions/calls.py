"""Composite calls in a model: their shapes, their replacement by bodies, and the way back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from gradtool.functions import DOMAIN, Composite, composites

if TYPE_CHECKING:
    from gradtool.builder import Builder

CALL = "gradtool.call"
CALLEE = "gradtool.callee"


@cache
def register_shapes() -> None:
    """Teach the shape inference library the shapes of our composites, once."""
    from onnx_shape_inference import registry

    from gradtool import shape_rules

    shape_rules.register()
    for name, entry in composites().items():
        registry.register(DOMAIN, name)(_inference(entry))


def _inference(entry: Composite) -> Callable[[Any, ir.Node], None]:
    def infer(context: Any, node: ir.Node) -> None:
        if any(v is not None and (v.shape is None or v.dtype is None) for v in node.inputs):
            return
        found = entry.shapes(*node.inputs, **arguments(node))
        for value, (shape, dtype) in zip(node.outputs, found, strict=False):
            context.set_shape_and_dtype(value, ir.Shape(shape), dtype)

    return infer


def arguments(node: ir.Node) -> dict[str, Any]:
    """The attributes of a node as Python values; tensors as numpy arrays."""
    return {
        name: attr.value.numpy() if attr.type == ir.AttributeType.TENSOR else attr.value
        for name, attr in sorted(node.attributes.items())
    }


def inline(model: ir.Model) -> None:
    """Replace every composite call by its body, marked so that `refold` can undo it."""
    expand(model, lambda _: False, mark=True)


def expand(model: ir.Model, keep: Callable[[str], bool], *, mark: bool = False) -> None:
    """Replace the composite calls whose name `keep` refuses by their bodies."""
    calls = [n for n in model.graph.all_nodes() if n.domain == DOMAIN and not keep(n.op_type)]
    if calls:
        from gradtool.builder import Builder

        op = Builder(model)
        for node in calls:
            emitted = _emit_body(op, node)
            if mark:
                for inner in emitted:
                    inner.metadata_props[CALL] = node.name or ""
                emitted[0].metadata_props[CALLEE] = _describe(node)
            _replace(node, op.results)
    if not any(n.domain == DOMAIN for n in model.graph.all_nodes()):
        model.graph.opset_imports.pop(DOMAIN, None)


def _emit_body(op: Builder, node: ir.Node) -> list[ir.Node]:
    """Emit the body of a call before it; `op.results` then holds its outputs."""
    start = len(op.emitted)
    stage = node.metadata_props.get("gradtool.stage", "forward")
    source = node.metadata_props.get("gradtool.source", "")
    with op.at(node, stage=stage, source=source, prefix=node.name or ""), op.arithmetic():
        made = composites()[node.op_type].body(op, *node.inputs, **arguments(node))
        made = (made,) if isinstance(made, ir.Value) else tuple(made)
        seen: list[ir.Value] = []
        for value in made:
            own = value.producer() in op.emitted[start:] and value not in seen
            seen.append(value if own else op.Identity(value))
    op.results = tuple(seen)
    return op.emitted[start:]


def _replace(node: ir.Node, results: tuple[ir.Value, ...]) -> None:
    """Let `results` take the names and the readers of the node's outputs, and drop the node."""
    for old, new in zip(node.outputs, results, strict=False):
        name = old.name
        old.name = None
        new.name = name
        if old.dtype == new.dtype and old.shape is not None:
            new.shape = old.shape
        old.replace_all_uses_with(new, replace_graph_outputs=True)
    assert node.graph is not None  # noqa: S101 - a node found in a graph
    node.graph.remove(node, safe=True)


def _describe(node: ir.Node) -> str:
    return json.dumps(
        {
            "op": node.op_type,
            "inputs": [v.name if v is not None else "" for v in node.inputs],
            "outputs": [v.name for v in node.outputs],
            "attributes": arguments(node),
        },
        sort_keys=True,
    )


def refold(model: ir.Model) -> int:
    """Put composite calls back where `inline` replaced them. Returns how many were.

    Metadata is not believed: the body is emitted again, and a group of nodes that differs from it
    in anything stays as it is.
    """
    groups = dict(_groups(model.graph))
    if not groups:
        return 0
    from gradtool.builder import Builder

    op = Builder(model)
    values = {v.name: v for v in (*model.graph.inputs, *model.graph.initializers.values())}
    values |= {v.name: v for n in model.graph for v in n.outputs if v.name}
    return sum(_refold_group(op, nodes, values) for nodes in groups.values())


def _groups(graph: ir.Graph) -> Iterator[tuple[str, list[ir.Node]]]:
    found: dict[str, list[ir.Node]] = {}
    for node in graph:
        call = node.metadata_props.get(CALL)
        if call is not None:
            found.setdefault(call, []).append(node)
    yield from found.items()


def _refold_group(op: Builder, nodes: list[ir.Node], values: dict[str | None, ir.Value]) -> bool:
    made = _read_call(nodes, values)
    if made is None:
        return False
    node, outputs = made
    start = len(op.emitted)
    op.graph.insert_before(nodes[0], node)
    op.infer(node)
    emitted = _emit_body(op, node)
    same = _same({}, emitted, nodes, dict(zip(op.results, outputs, strict=True)))
    op.graph.remove(emitted)
    del op.emitted[start:]
    if not same:
        op.graph.remove(node)
        return False
    for old, new in zip(outputs, node.outputs, strict=True):
        name = old.name
        old.name = None
        new.name = name
        values[name] = new
        old.replace_all_uses_with(new, replace_graph_outputs=True)
    op.graph.remove(nodes, safe=True)
    op.model.graph.opset_imports.setdefault(DOMAIN, 1)
    return True


def _read_call(
    nodes: list[ir.Node], values: dict[str | None, ir.Value]
) -> tuple[ir.Node, list[ir.Value]] | None:
    """The call that the first node of a group describes, and the values it would replace."""
    try:
        callee = json.loads(nodes[0].metadata_props[CALLEE])
        entry = composites()[callee["op"]]
        inputs = [values[n] if n else None for n in callee["inputs"]]
        outputs = [values[n] for n in callee["outputs"]]
        from gradtool.builder import attribute

        attributes = [attribute(k, v) for k, v in callee["attributes"].items()]
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    if not 0 < len(outputs) <= entry.outputs:
        return None
    props = {k: v for k, v in nodes[0].metadata_props.items() if k not in (CALL, CALLEE)}
    node = ir.Node(
        DOMAIN,
        entry.name,
        inputs,
        attributes,
        num_outputs=len(outputs),
        name=nodes[0].metadata_props[CALL],
        metadata_props=props,
    )
    return node, outputs


def _equal_input(known: dict[ir.Value, ir.Value], a: ir.Value | None, b: ir.Value | None) -> bool:
    if a is None or b is None:
        return a is b
    if known.get(a, a) is b:
        return True
    left, right = a.const_value, b.const_value
    if left is None or right is None or left.dtype != right.dtype or left.shape != right.shape:
        return False
    return left.tobytes() == right.tobytes()


def _equal_attributes(known: dict[ir.Value, ir.Value], ours: ir.Node, theirs: ir.Node) -> bool:
    if sorted(ours.attributes) != sorted(theirs.attributes):
        return False
    for name, a in ours.attributes.items():
        b = theirs.attributes[name]
        if a.type != b.type:
            return False
        if a.type == ir.AttributeType.GRAPH:
            if not _equal_graphs(known, a.as_graph(), b.as_graph()):
                return False
        elif a.type == ir.AttributeType.TENSOR:
            left, right = a.as_tensor(), b.as_tensor()
            if left.dtype != right.dtype or left.tobytes() != right.tobytes():
                return False
        elif a.value != b.value:
            return False
    return True


def _equal_graphs(known: dict[ir.Value, ir.Value], a: ir.Graph, b: ir.Graph) -> bool:
    if len(a.inputs) != len(b.inputs) or len(a.outputs) != len(b.outputs):
        return False
    inner = known | dict(zip(a.inputs, b.inputs, strict=True))
    produced = dict(zip(a.outputs, b.outputs, strict=True))
    return _same(inner, list(a), list(b), produced)


def _same(
    known: dict[ir.Value, ir.Value],
    emitted: list[ir.Node],
    nodes: list[ir.Node],
    pairs: dict[ir.Value, ir.Value],
) -> bool:
    """Whether two node lists compute the same, node by node; `pairs` maps results to results."""
    if len(emitted) != len(nodes):
        return False
    for ours, theirs in zip(emitted, nodes, strict=True):
        if ours.op_identifier() != theirs.op_identifier():
            return False
        if len(ours.inputs) != len(theirs.inputs) or len(ours.outputs) != len(theirs.outputs):
            return False
        if not all(
            _equal_input(known, a, b) for a, b in zip(ours.inputs, theirs.inputs, strict=True)
        ):
            return False
        if not _equal_attributes(known, ours, theirs):
            return False
        known.update(zip(ours.outputs, theirs.outputs, strict=True))
    return all(known.get(mine, mine) is value for mine, value in pairs.items())
