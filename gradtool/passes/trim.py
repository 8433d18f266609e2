"""Dead code elimination in subgraphs: outputs of If, rows of Loop and Scan."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from gradtool.graph.predicates import is_used
from gradtool.graph.prune import detach, drop_unread, succeed
from gradtool.graph.training_info import TrainingInfo
from gradtool.graph.walk import graphs, subgraphs


def trim(model: ir.Model) -> int:
    """Drop unread outputs of nodes with subgraphs, and nodes then dead in these.

    Returns how many outputs were dropped.  States of loops stay: the next turn reads them.
    """
    count = 0
    while dropped := sum(_trim(graph) for graph in graphs(model.graph)):
        count += dropped
    return count


def _trim(graph: ir.Graph) -> int:
    count = 0
    for node in list(graph):
        if node.domain or node.op_type not in ("If", "Loop", "Scan"):
            continue
        first = _first_row(node)
        kept = [i for i, v in enumerate(node.outputs) if i < first or is_used(v)]
        if len(kept) < len(node.outputs) and kept:
            count += len(node.outputs) - len(kept)
            _shrink(node, kept, first)
    return count


def _first_row(node: ir.Node) -> int:
    """The number of state outputs."""
    if node.op_type == "If":
        return 0
    if node.op_type == "Loop":
        return len(node.inputs) - 2
    return len(node.inputs) - node.attributes["num_scan_inputs"].as_int()


def _shrink(node: ir.Node, kept: list[int], first: int) -> None:
    """Put a node with fewer outputs in the place of one."""
    before = 1 if node.op_type == "Loop" else 0  # a body gives its condition first
    for inner in subgraphs(node):
        outputs = list(inner.outputs)
        inner.outputs[:] = [*outputs[:before], *(outputs[before + i] for i in kept)]
        drop_unread(inner)
    attributes = [_selected(attr, kept, first) for attr in node.attributes.values()]
    node.attributes.clear()
    made = ir.Node(
        node.domain, node.op_type, node.inputs, attributes, num_outputs=len(kept),
        name=node.name, metadata_props=dict(node.metadata_props),
    )  # fmt: skip
    for index, value in zip(kept, made.outputs, strict=True):
        old = node.outputs[index]
        value.type, value.shape = old.type, old.shape
        succeed(value, old)
    assert isinstance(node.graph, ir.Graph)  # noqa: S101 - a node found in a graph
    node.graph.insert_before(node, made)
    detach(node)
    node.graph.remove(node)


def _selected(attr: ir.Attr, kept: list[int], first: int) -> ir.Attr:
    """An attribute without its entries for removed rows."""
    if attr.name not in ("scan_output_axes", "scan_output_directions"):
        return attr
    values = attr.as_ints()
    return ir.AttrInt64s(attr.name, [values[i - first] for i in kept if i >= first])


def return_no_more(model: ir.Model, those: Collection[ir.Value], loss: ir.Value | None) -> None:
    """Remove values from the outputs of a model, in place, unless one is the loss.

    A value read by the loss alone then dies there, and its gradient may lie in its place.  Next
    values of state stay, and so do losses and gradients where a training graph is differentiated.
    """
    if not those or loss is None:
        return
    info = TrainingInfo.of(model)
    stays = {loss.name, *info.state.values()}
    for lower in info.lower:
        stays |= {lower.loss, *lower.gradients.values()}
    outputs = [v for v in model.graph.outputs if v not in those or v.name in stays]
    model.graph.outputs.clear()
    model.graph.outputs.extend(outputs)
