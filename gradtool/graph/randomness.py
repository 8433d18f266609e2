"""Nodes that draw random numbers, or may differ from run to run; masks that follow from a count."""

from __future__ import annotations

import onnx_ir as ir

from gradtool.graph.composites import DOMAIN
from gradtool.graph.prune import inner_nodes
from gradtool.graph.training_info import TrainingInfo

RANDOM = frozenset({
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
})  # fmt: skip
TOGETHER = frozenset(
    {"RanksMoments", "RanksMean", "RanksPart", "RanksRows", "RanksRowSums"}
)  # of ai.gradtool: all ranks run them at once
HANDED = frozenset(
    {"StageSend", "StageReceive", "StageGive", "StageSent"}
)  # of ai.gradtool: one rank hands another something


def may_draw(node: ir.Node) -> bool:
    """Whether a node itself draws random numbers, with a fixed seed or without."""
    if node.domain not in ("", "ai.onnx"):
        return False
    return node.op_type in RANDOM or (node.op_type == "Dropout" and may_drop(node))


def draws(node: ir.Node) -> bool:
    """Whether a node may draw random numbers, or a node of its subgraphs; or asks other ranks."""
    if node.domain == DOMAIN and (node.op_type in TOGETHER or node.op_type in HANDED):
        return True
    return may_draw(node) or (bool(node.attributes.data) and any(map(may_draw, inner_nodes(node))))


def may_drop(node: ir.Node) -> bool:
    """Whether a Dropout is not known to be in inference mode."""
    flag = node.inputs[2] if len(node.inputs) > 2 else None
    if flag is None:
        return False
    tensor = ir.convenience.get_const_tensor(flag)
    return tensor is None or bool(tensor.numpy().item())


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
