"""Guarded losses of a model's own: no runtime may count a negative label from the last class.

Our own kernels refuse it; stock onnxruntime indexes with it.
"""

from __future__ import annotations

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph import constants, walk
from gradtool.graph.metadata import SOURCE, STAGE
from gradtool.graph.typed import as_tensor
from gradtool.operators.losses import OF_CLASSES
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


def _takes_any(node: ir.Node) -> bool:
    """Whether a loss reads labels that may be below 0."""
    if node.op_type not in OF_CLASSES or node.domain not in ("", "ai.onnx"):
        return False
    labels = node.inputs[1]
    while labels is not None and (made := labels.producer()) is not None:
        if made.op_type in _BOUNDS:
            return False
        if made.op_type not in _HANDS_ON:
            break
        labels = made.inputs[0]
    return labels is not None and constants.array(labels) is None
