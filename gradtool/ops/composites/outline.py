"""Composite calls put back where `calls.inline` replaced them by their bodies."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph import walk
from gradtool.graph.attributes import attribute
from gradtool.graph.composites import DOMAIN, named
from gradtool.graph.devices import place_like
from gradtool.graph.metadata import CALL, CALLEE
from gradtool.graph.predicates import is_used
from gradtool.graph.prune import detach, drop, inner_nodes
from gradtool.ops.composites.calls import emit_body, return_instead, take_over
from gradtool.ops.composites.dead_outputs import is_optional, needed


def same_nodes(
    known: dict[ir.Value, ir.Value],
    emitted: list[ir.Node],
    nodes: list[ir.Node],
    pairs: dict[ir.Value, ir.Value],
) -> bool:
    """Whether two node lists compute the same, node by node; `pairs` maps results to results.

    The nodes of the second may lack optional outputs at the end that no node of the first reads.
    """
    if len(emitted) != len(nodes):
        return False
    for ours, theirs in zip(emitted, nodes, strict=True):
        if ours.op_identifier() != theirs.op_identifier():
            return False
        if len(ours.inputs) != len(theirs.inputs) or not _same_outputs(ours, theirs):
            return False
        if not all(
            _equal_input(known, a, b) for a, b in zip(ours.inputs, theirs.inputs, strict=True)
        ):
            return False
        if not _equal_attributes(known, ours, theirs):
            return False
        known.update(zip(ours.outputs, theirs.outputs, strict=False))
    return all(known.get(mine, mine) is value for mine, value in pairs.items())


def _same_outputs(ours: ir.Node, theirs: ir.Node) -> bool:
    """Whether nodes have equally many outputs, optional last ones of `ours` aside."""
    mine, least = len(ours.outputs), len(theirs.outputs)
    return mine >= least and all(is_optional(ours, i) for i in range(least, mine))


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
    return same_nodes(inner, list(a), list(b), produced)


def outline(model: ir.Model) -> int:
    """Put composite calls back where `inline` replaced them. Returns how many were.

    Metadata is not believed: the body is emitted again, and a group of nodes that differs from it
    in anything stays as it is.  Dead nodes count for neither.
    """
    _lift_constants(model)
    groups = _groups(model)
    if not groups:
        return 0
    op = Builder(model)
    before = set(model.graph.initializers)
    values = {
        v.name: v for g in walk.graphs(model.graph) for v in (*g.inputs, *g.initializers.values())
    }
    values |= {v.name: v for n in walk.nodes(model.graph) for v in n.outputs if v.name}
    discarded: list[ir.Node] = []
    moved: dict[ir.Value, ir.Value] = {}
    count = sum(_refold_group(op, nodes, values, discarded, moved) for nodes in groups)
    return_instead(moved)
    drop(discarded)
    for name in [n for n in model.graph.initializers if n not in before]:
        if not model.graph.initializers[name].uses():
            del model.graph.initializers[name]
    return count


def _lift_constants(model: ir.Model) -> None:
    """Constants of bodies that were functions become initializers, as elsewhere."""
    for node in [n for n in walk.nodes(model.graph) if CALL in n.metadata_props]:
        tensor = node.attributes.get_tensor("value") if node.op_type == "Constant" else None
        if tensor is None or node.domain or node.outputs[0].is_graph_output():
            continue
        (value,) = node.outputs
        name, value.name = value.name, None
        made = ir.Value(
            name=name, shape=ir.Shape(tensor.shape.numpy()), type=ir.TensorType(tensor.dtype),
            const_value=tensor,
        )  # fmt: skip
        model.graph.register_initializer(made)
        value.replace_all_uses_with(made)
        drop([node])


def _groups(model: ir.Model) -> list[list[ir.Node]]:
    """The runs of nodes that carry the name of the same call."""
    found = []
    for graph in walk.graphs(model.graph):
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
    if made is None or not _is_closed(nodes, list(made[1].values())):
        return False
    node, outputs = made
    graph = nodes[0].graph
    assert isinstance(graph, ir.Graph)  # noqa: S101 - a node found in a graph
    graph.insert_before(nodes[0], node)
    start = len(op.emitted)
    try:
        op.infer(node)
        same = any(_is_body(op, node, form, nodes, outputs) for form in _forms(nodes))
    except Exception:  # noqa: BLE001 - made-up metadata may ask anything of a body
        same = False
    for inner in op.emitted[start:]:
        detach(inner)
    discarded += op.emitted[start:]
    if not same:
        discarded.append(node)
        return False
    made_again = [node.outputs[i] for i in outputs]
    take_over(list(outputs.values()), made_again)
    moved |= zip(outputs.values(), made_again, strict=True)
    values |= {v.name: v for v in node.outputs}
    discarded += nodes
    op.model.graph.opset_imports.setdefault(DOMAIN, 1)
    return True


def _forms(nodes: list[ir.Node]) -> tuple[bool, ...]:
    """Whether a body may have been written in pieces: then it is a loop."""
    return (False, True) if any(inner.op_type == "Scan" for inner in nodes) else (False,)


def _is_body(
    op: Builder, call: ir.Node, in_pieces: bool, nodes: list[ir.Node],  # noqa: FBT001
    outputs: dict[int, ir.Value],
) -> bool:  # fmt: skip
    """Whether nodes are the body of a call; `op.results` are then its results."""
    op.in_pieces = in_pieces
    emitted = emit_body(op, call)
    pairs = {op.results[i]: v for i, v in outputs.items() if is_used(v)}
    return same_nodes({}, needed(emitted, pairs), needed(nodes, pairs.values()), pairs)


def _is_closed(nodes: list[ir.Node], outputs: list[ir.Value]) -> bool:
    """Whether nobody else reads any value of a run of nodes but `outputs`."""
    members = {n for node in nodes for n in (node, *inner_nodes(node))}
    hidden = [v for n in nodes for v in n.outputs if v not in outputs]
    return not any(
        v.is_graph_output() or any(u.node not in members for u in v.uses()) for v in hidden
    )


def _read_call(
    nodes: list[ir.Node], values: dict[str | None, ir.Value]
) -> tuple[ir.Node, dict[int, ir.Value]] | None:
    """The call that the first node of a group describes, and the values it would replace.

    These are by the place of its outputs; none may be there for an output that nobody reads.
    """
    try:
        callee = json.loads(nodes[0].metadata_props[CALLEE])
        entry = named(callee["op"])
        inputs = [values[n] if n else None for n in callee["inputs"]]
        names: list[str] = callee["outputs"]
        outputs = {i: values[n] for i, n in enumerate(names) if n in values}
        attributes = [attribute(k, v) for k, v in callee["attributes"].items()]
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    if any(v.producer() not in nodes for v in outputs.values()):
        return None
    if not any(map(is_used, outputs.values())):
        return None
    props = {k: v for k, v in nodes[0].metadata_props.items() if k not in (CALL, CALLEE)}
    node = ir.Node(
        DOMAIN,
        entry.name,
        inputs,
        attributes,
        num_outputs=len(names),
        name=nodes[0].metadata_props[CALL],
        metadata_props=props,
    )
    for name, value in zip(names, node.outputs, strict=True):
        value.name = name if name not in values else None
    place_like(node, nodes[0], {})
    return node, outputs
