"""Guarded losses: no runtime may count a negative label from the last class.

Our own kernels refuse it; stock onnxruntime indexes with it.  Written files hold the guards, and
loading takes them out again, so that a file takes the memory of the graph it was written from.
"""

from __future__ import annotations

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph import constants, walk
from gradtool.graph.metadata import SOURCE, STAGE
from gradtool.graph.predicates import made_by, op_of
from gradtool.graph.typed import as_tensor
from gradtool.operators.losses import NO_CLASS, OF_CLASSES
from gradtool.ops.loss.body import refused_below_zero

# What hands on labels, or has made them such that none is below 0 unless it is ignored.
_HANDS_ON = ("Reshape", "Squeeze", "Unsqueeze", "Transpose", "Cast", "Identity", "Slice", "Flatten")
_BOUNDS = ("Max", "Where", "Clip")


def refuse_labels(model: ir.Model) -> int:
    """Put a class out of range for negative labels of each loss, in place.  Returns of how many."""
    nodes = [node for node in walk.nodes(model.graph) if _takes_any(node)]
    if not nodes:
        return 0
    op = Builder(model)
    for node in nodes:
        labels = as_tensor(node.inputs[1])
        ignored = node.attributes.get_int("ignore_index", 0)  # one above 0 changes nothing
        stage, source = node.metadata_props.get(STAGE, "forward"), node.metadata_props.get(SOURCE)
        with op.at(node, stage=stage, source=source or "", prefix=node.name or ""):
            node.replace_input_with(1, refused_below_zero(op, labels, ignored))
    return len(nodes)


def accept_labels(model: ir.Model) -> int:
    """Let losses read their labels, not the guards, in place.  Returns how many do.

    A guard is proved by its operators alone: it replaces labels that our kernels refuse.
    """
    count = 0
    for node in [node for node in walk.nodes(model.graph) if op_of(node) in OF_CLASSES]:
        labels = _guarded(node)
        if labels is not None:
            count += 1
            node.replace_input_with(1, labels)
    return count


def _guarded(loss: ir.Node) -> ir.Value | None:
    """The labels l of `Where(l < 0, NO_CLASS, l)`, with `and not l == ignored` where one is."""
    where = made_by("Where", loss.inputs[1])
    if where is None or constants.integers(where.inputs[1]) != [NO_CLASS]:
        return None
    refused, _, labels = where.inputs
    ignored = loss.attributes.get_int("ignore_index", 0)
    both = made_by("And", refused) if ignored < 0 else None
    if both is not None:
        refused, counted = both.inputs
        other = made_by("Not", counted)
        if other is None or not _compares("Equal", other.inputs[0], labels, ignored):
            return None
    return labels if _compares("Less", refused, labels, 0) else None


def _compares(op_type: str, value: ir.Value | None, left: ir.Value | None, right: int) -> bool:
    """Whether a value is of `left == right`, or another comparison of these."""
    node = made_by(op_type, value)
    return (
        node is not None and node.inputs[0] is left
        and constants.integers(node.inputs[1]) == [right]
    )  # fmt: skip


def _takes_any(node: ir.Node) -> bool:
    """Whether a loss reads labels that may be below 0."""
    if op_of(node) not in OF_CLASSES:
        return False
    labels = node.inputs[1]
    while labels is not None and (made := labels.producer()) is not None:
        if made.op_type in _BOUNDS:
            return False
        if made.op_type not in _HANDS_ON:
            break
        labels = made.inputs[0]
    return labels is not None and constants.array(labels) is None
