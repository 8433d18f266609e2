"""Expansion of `ai.onnx.preview.training::Gradient` into a backward pass.

    Gradient <xs = ["a", "b"], zs = ["c"], y = "f"> (a, b, c)  →  ∂ Σ f / ∂ a, ∂ Σ f / ∂ b

The names are those of values in the same graph.  Where the node is fed other values than those
named, the nodes between them and y are copied and fed these.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import ModelError, Unreachable
from gradtool.graph import walk
from gradtool.graph.families import PREVIEW as DOMAIN
from gradtool.graph.metadata import STAGE
from gradtool.graph.names import Names
from gradtool.graph.prune import drop, succeed
from gradtool.graph.reads import dependent, needed, reads
from gradtool.graph.training_info import TrainingInfo, record
from gradtool.graph.typed import as_tensor
from gradtool.ops.control.gradient_bodies import copy
from gradtool.ops.driver import differentiate
from gradtool.passes.update_order import mark_updates, update_early
from gradtool.shapes import infer


def lower_gradients(model: ir.Model) -> dict[str, str]:
    """Replace every Gradient node of the main graph, in place.

    Shapes must have been inferred; they are again.  Returns the name of the gradient by that of
    each value it is of.

    Raises:
        ModelError: a node names a value that does not exist.
        Offenders: operators on the way have no gradient.
    """
    found: dict[str, str] = {}
    while node := next((n for n in model.graph if is_gradient(n)), None):
        found |= _lower(model, node)
        infer(model)
    if found and not any(n.domain == DOMAIN for n in walk.nodes(model.graph)):
        model.graph.opset_imports.pop(DOMAIN, None)
    return found


def publish_gradients(model: ir.Model, gradients: dict[str, str]) -> None:
    """Mark a training step that updates initializers as a graph with gradients.

    The gradients are outputs then, and updates run as early as they may; a graph that updates
    nothing stays a forward one.
    """
    if not TrainingInfo.of(model).state:
        return
    values = _values(model.graph)
    for name in gradients.values():
        if name in values and values[name] not in model.graph.outputs:
            model.graph.outputs.append(values[name])
    record(model, gradients={x: name for x, name in gradients.items() if name in values})
    mark_updates(model)
    update_early(model)


def is_gradient(node: ir.Node) -> bool:
    """Whether a node is one of these."""
    return node.domain == DOMAIN and node.op_type == "Gradient"


def _lower(model: ir.Model, node: ir.Node) -> dict[str, str]:
    xs = node.attributes["xs"].as_strings()
    zs = node.attributes["zs"].as_strings() if "zs" in node.attributes else ()
    names = (*xs, *zs)
    if len(node.inputs) != len(names):
        raise ModelError(
            f"Gradient {node.name!r}: {len(node.inputs)} inputs for {len(names)} names"
        )
    values = _values(model.graph)
    leaves = [_named(values, name, node) for name in names]
    y = _named(values, node.attributes["y"].as_string(), node)
    op = Builder(model, names=Names.of(model))
    start = len(op.emitted)
    with op.at(None, stage="forward", source="", prefix=node.name or "Gradient"):
        y, fed = _fed(op, node, leaves, y)
        if y.shape is None or y.dtype is None:
            raise ModelError(f"Gradient {node.name!r}: the shape of {y.name!r} is not known")
        reach = needed(model.graph, [y])
        if any(x not in reach for x in fed[: len(xs)]):
            raise Unreachable(f"Gradient {node.name!r}: {y.name!r} does not depend on all of xs")
        one = op.constant(np.ones((1,) * len(y.shape), y.dtype.numpy()))
        head = op.expand(one, like=as_tensor(y))
        wrt = list(dict.fromkeys(fed[: len(xs)]))
        made = differentiate(op, {y: head}, wrt, cut=frozenset(fed[len(xs) :]))
    is_step = bool(TrainingInfo.of(model).state)
    for emitted in op.emitted[start:]:
        emitted.metadata_props[STAGE] = "backward" if is_step else "forward"
    gradients = {x: v.name or "" for x, v in zip(xs, node.outputs, strict=False)}
    results = []
    for output, x in zip(node.outputs, fed, strict=False):
        if output.name:
            result = _copied(op, made.gradients[x])
            succeed(result, output)
            results.append(result)
    drop([node])
    _move_behind(model.graph, results)
    return gradients


def _move_behind(graph: ir.Graph, results: list[ir.Value]) -> None:
    """Move readers of gradients to the end of the graph; all else keeps its place."""
    found = set(results)
    later = []
    for node in graph:
        if any(v in found for v in reads(node)):
            later.append(node)
            found.update(node.outputs)
    graph.remove(later)
    graph.extend(later)


def _copied(op: Builder, gradient: ir.Value) -> ir.Value:
    """A copy of a gradient, made as soon as it is final: its readers need not wait for others."""
    result: ir.Value = op.Identity(gradient)
    copy_, maker = result.producer(), gradient.producer()
    if copy_ is not None and maker is not None and maker.graph is op.graph:
        op.graph.remove(copy_)
        op.graph.insert_after(maker, copy_)
    return result


def _values(graph: ir.Graph) -> dict[str, ir.Value]:
    values = (*graph.inputs, *graph.initializers.values(), *(v for n in graph for v in n.outputs))
    return {v.name: v for v in values if v.name}


def _named(values: dict[str, ir.Value], name: str, node: ir.Node) -> ir.Value:
    if name not in values:
        raise ModelError(f"Gradient {node.name!r}: there is no value {name!r}")
    return values[name]


def _fed(
    op: Builder, node: ir.Node, leaves: list[ir.Value], y: ir.Value
) -> tuple[ir.Value, list[ir.Value]]:
    """`y` and the leaves, as they are when the node's inputs are fed to the leaves."""
    fed = [
        leaf if value is None else value for leaf, value in zip(leaves, node.inputs, strict=True)
    ]
    if fed == leaves:
        return y, leaves
    known = dict(zip(leaves, fed, strict=True))
    cut = frozenset(leaves)
    path = dependent(op.graph, leaves) & (needed(op.graph, [y]) | {y})
    for each in list(op.graph):
        outputs = [v for v in each.outputs if v in path and v not in cut]
        if outputs and any(v in known for v in reads(each)):
            before = dict(known)
            copy(op, each, known)
            known |= {v: before[v] for v in cut if v in before}
    return known.get(y, y), fed
