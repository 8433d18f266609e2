"""Dropout by a counted mask: its two nodes, and the numbers that the mask follows from."""

from __future__ import annotations

import onnx_ir as ir

from gradtool.graph.composites import DOMAIN
from gradtool.graph.training_info import TrainingInfo

MASK, APPLY = "DropoutMask", "DropoutGrad"
NUMBERS = ("seed", "step", "part")


def numbers_of(model: ir.Model) -> dict[str, str]:
    """The inputs that decide dropout masks, by role; none without dropout."""
    names = TrainingInfo.of(model).draws
    if not names:
        return {}
    inputs = {v.name for v in model.graph.inputs}
    return {number: name for number, name in names.items() if name in inputs}


def passed_through(node: ir.Node) -> ir.Value | None:
    """The value that a dropout by a counted mask gives in inference; None of another node."""
    if node.domain != DOMAIN or node.op_type != APPLY:
        return None
    mask = node.inputs[0].producer() if node.inputs[0] is not None else None
    return node.inputs[1] if mask is not None and mask.op_type == MASK else None
