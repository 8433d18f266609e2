"""Composite calls in a model: their shapes, their replacement by bodies, and the way back."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.attributes import arguments, attribute
from gradtool.builder import Builder
from gradtool.functions import DOMAIN, composites
from gradtool.passes.devices import place_like
from gradtool.passes.prune import detach, drop, inner_nodes

CALL = "gradtool.call"
CALLEE = "gradtool.callee"


def inline(model: ir.Model) -> None:
    """Replace every composite call by its body, marked so that `refold` can undo it."""
    expand(model, lambda _: False, mark=True)


def expand(model: ir.Model, keep: Callable[[str], bool], *, mark: bool = False) -> None:
    """Replace the composite calls whose name `keep` refuses by their bodies."""
    calls = [n for n in model.graph.all_nodes() if n.domain == DOMAIN and not keep(n.op_type)]
    if calls:
        replace(Builder(model), calls, mark=mark)
    if not any(n.domain == DOMAIN for n in model.graph.all_nodes()):
        model.graph.opset_imports.pop(DOMAIN, None)


def replace(
    op: Builder, calls: Sequence[ir.Node], *, mark: bool = False
) -> dict[ir.Value, ir.Value]:
    """Put the bodies of composite calls in their place.

    Returns, by output of a call, the value that has its name and its readers now.
    """
    moved: dict[ir.Value, ir.Value] = {}
    for node in calls:
        emitted = emit_body(op, node)
        for inner in emitted:
            place_like(inner, node, dict(zip(node.outputs, op.results, strict=False)))
        if mark:
            for inner in emitted:
                inner.metadata_props[CALL] = node.name or ""
            emitted[0].metadata_props[CALLEE] = describe(node)
        _take_over(node.outputs, op.results)
        moved |= zip(node.outputs, op.results, strict=False)
    _return_instead(moved)
    drop(calls)
    op.forget_sizes()
    return moved


def emit_body(op: Builder, node: ir.Node) -> list[ir.Node]:
    """Emit the body of a call before it; `op.results` then holds its outputs."""
    start = len(op.emitted)
    stage = node.metadata_props.get("gradtool.stage", "forward")
    source = node.metadata_props.get("gradtool.source", "")
    op.near = tuple(v for v in node.inputs if v is not None)
    with op.at(node, stage=stage, source=source, prefix=node.name or ""), op.arithmetic():
        made = composites()[node.op_type].body(op, *node.inputs, **arguments(node))
        made = (made,) if isinstance(made, ir.Value) else tuple(made)
        inner = set(op.emitted[start:])
        seen: list[ir.Value] = []
        for value in made:
            own = value.producer() in inner and value not in seen
            seen.append(value if own else op.Identity(value))
    op.results, op.near = tuple(seen), ()
    return op.emitted[start:]


def _take_over(before: Sequence[ir.Value], after: Sequence[ir.Value]) -> None:
    """Let the values of `after` take the names and the readers of those of `before`.

    Whatever graph returns the old ones still does: see `_return_instead`.
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
    """The sizes of `old`; where they are open, those of `new` that are not."""
    if new is None or len(old) != len(new):
        return old
    return ir.Shape(b if isinstance(b, int) else a for a, b in zip(old, new, strict=True))


def _return_instead(moved: Mapping[ir.Value, ir.Value]) -> None:
    """Let graphs return new values for old ones: one pass, however many outputs there are."""
    graphs = {v.graph for v in moved if v.is_graph_output()}
    for graph in graphs:
        assert isinstance(graph, ir.Graph)  # noqa: S101 - only graphs have outputs
        graph.outputs[:] = [moved.get(v, v) for v in graph.outputs]


def describe(node: ir.Node) -> str:
    """What a call is, as `refold` reads it."""
    return json.dumps(
        {
            "op": node.op_type,
            "inputs": [v.name if v is not None else "" for v in node.inputs],
            "outputs": [v.name for v in node.outputs],
            "attributes": arguments(node),
        },
        sort_keys=True,
    )


def is_inlined(model: ir.Model) -> bool:
    """Whether the graph holds bodies that `inline` marked."""
    return any(CALL in node.metadata_props for node in model.graph.all_nodes())


def refold(model: ir.Model) -> int:
    """Put composite calls back where `inline` replaced them. Returns how many were.

    Metadata is not believed: the body is emitted again, and a group of nodes that differs from it
    in anything stays as it is.
    """
    _lift_constants(model)
    groups = _groups(model)
    if not groups:
        return 0
    op = Builder(model)
    before = set(model.graph.initializers)
    values = {v.name: v for g in model.graphs() for v in (*g.inputs, *g.initializers.values())}
    values |= {v.name: v for n in model.graph.all_nodes() for v in n.outputs if v.name}
    discarded: list[ir.Node] = []
    moved: dict[ir.Value, ir.Value] = {}
    count = sum(_refold_group(op, nodes, values, discarded, moved) for nodes in groups)
    _return_instead(moved)
    drop(discarded)
    for name in [n for n in model.graph.initializers if n not in before]:
        if not model.graph.initializers[name].uses():
            del model.graph.initializers[name]
    return count


def _lift_constants(model: ir.Model) -> None:
    """Constants of bodies that were functions become initializers, as they are elsewhere."""
    for node in [n for n in model.graph.all_nodes() if CALL in n.metadata_props]:
        tensor = node.attributes.get_tensor("value") if node.op_type == "Constant" else None
        if tensor is None or node.domain or node.outputs[0].is_graph_output():
            continue
        (value,) = node.outputs
        name, value.name = value.name, None
        made = ir.Value(
            name=name, shape=ir.Shape(tensor.shape), type=ir.TensorType(tensor.dtype),
            const_value=tensor,
        )  # fmt: skip
        model.graph.register_initializer(made)
        value.replace_all_uses_with(made)
        drop([node])


def _groups(model: ir.Model) -> list[list[ir.Node]]:
    """The runs of nodes that carry the name of the same call."""
    found = []
    for graph in model.graphs():
        runs = itertools.groupby(graph, lambda node: node.metadata_props.get(CALL))
        found += [list(nodes) for call, nodes in runs if call is not None]
    return found


def _refold_group(
    op: Builder,
    nodes: list[ir.Node],
    values: dict[str | None, ir.Value],
    discarded: list[ir.Node],
    moved: dict[ir.Value, ir.Value],
) -> bool:
    """Put one call back, if it may be.

    The nodes that then serve nobody go to `discarded`, what takes over a value to `moved`.
    """
    made = _read_call(nodes, values)
    if made is None or not _is_closed(nodes, made[1]):
        return False
    node, outputs = made
    graph = nodes[0].graph
    assert isinstance(graph, ir.Graph)  # noqa: S101 - a node found in a graph
    graph.insert_before(nodes[0], node)
    start = len(op.emitted)
    try:
        op.infer(node)
        emitted = emit_body(op, node)
        same = _same({}, emitted, nodes, dict(zip(op.results, outputs, strict=False)))
    except Exception:  # noqa: BLE001 - made-up metadata may ask anything of a body
        same = False
    for inner in op.emitted[start:]:
        detach(inner)
    discarded += op.emitted[start:]
    if not same:
        discarded.append(node)
        return False
    _take_over(outputs, node.outputs)
    moved |= zip(outputs, node.outputs, strict=False)
    values |= {v.name: v for v in node.outputs}
    discarded += nodes
    op.model.graph.opset_imports.setdefault(DOMAIN, 1)
    return True


def _is_closed(nodes: list[ir.Node], outputs: list[ir.Value]) -> bool:
    """Whether nobody else reads any value of a run of nodes but `outputs`."""
    members = {n for node in nodes for n in (node, *inner_nodes(node))}
    hidden = [v for n in nodes for v in n.outputs if v not in outputs]
    return not any(
        v.is_graph_output() or any(u.node not in members for u in v.uses()) for v in hidden
    )


def _read_call(
    nodes: list[ir.Node], values: dict[str | None, ir.Value]
) -> tuple[ir.Node, list[ir.Value]] | None:
    """The call that the first node of a group describes, and the values it would replace."""
    try:
        callee = json.loads(nodes[0].metadata_props[CALLEE])
        entry = composites()[callee["op"]]
        inputs = [values[n] if n else None for n in callee["inputs"]]
        outputs = [values[n] for n in callee["outputs"]]
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
    place_like(node, nodes[0], {})
    return node, outputs


def _equal_input(known: dict[ir.Value, ir.Value], a: ir.Value | None, b: ir.Value | None) -> bool:
    if a is None or b is None:
        return a is b
    if known.get(a, a) is b:
        return True
    left, right = a.const_value, b.const_value
    if left is None or right is None or left.dtype != right.dtype or left.shape != right.shape:
        return False
    if getattr(left, "absent", False) or getattr(right, "absent", False):
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
        elif _stored(a) != _stored(b):
            return False
    return True


def _stored(attr: ir.Attr) -> Any:
    """The value of an attribute as files hold it: floats have single precision."""
    if attr.type in (ir.AttributeType.FLOAT, ir.AttributeType.FLOATS):
        return np.asarray(attr.value, dtype=np.float32).tolist()
    return attr.value


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
