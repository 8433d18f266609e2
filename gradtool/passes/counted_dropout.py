"""Dropout whose mask is a function of a seed and a step.

Each gets a stream of its own by its place in the file.  What drops may then run twice: a memory
plan draws the mask again in place of holding it, and the bits stay the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.composites import DOMAIN
from gradtool.graph.known import Tensor, as_tensor
from gradtool.graph.metadata import DEFAULTS, DRAWS
from gradtool.passes.training_forms import stand_in

MASK, APPLY = "DropoutMask", "DropoutGrad"


def count_draws(op: Builder, nodes: Sequence[ir.Node]) -> None:
    """Replace Dropouts of the main graph by what a seed and a step decide, in place.

    Both are scalar inputs with the default 0, whose names are noted in the metadata.
    """
    if not nodes:
        return
    seed, step = (_input(op, name) for name in ("dropout_seed", "dropout_step"))
    props = op.model.metadata_props
    props[DRAWS] = json.dumps({"seed": seed.name, "step": step.name})
    known = json.loads(props.get(DEFAULTS, "{}"))
    props[DEFAULTS] = json.dumps({**known, seed.name or "": 0, step.name or "": 0})
    for stream, node in enumerate(nodes):
        _replace(op, node, stream, seed, step)


def _input(op: Builder, name: str) -> ir.Value:
    value = ir.Value(
        name=op.names.fresh(name), shape=ir.Shape(()), type=ir.TensorType(ir.DataType.INT64)
    )
    op.root.inputs.append(value)
    return value


def _replace(op: Builder, node: ir.Node, stream: int, seed: ir.Value, step: ir.Value) -> None:
    x, ratio = as_tensor(node.inputs[0]), node.inputs[1] if len(node.inputs) > 1 else None
    with op.at(node, stage="forward", source="", prefix=node.name or ""), op.arithmetic():
        given = op.constant(0.5, x.dtype) if ratio is None else as_tensor(ratio)
        scale = _scale(op, given, x.dtype)
        mask = op.DropoutMask(op.shape(x), given, seed, step, stream=stream)
        y = op.DropoutGrad(mask, x, scale)
    stand_in((y, mask), node)


def _scale(op: Builder, ratio: Tensor, dtype: ir.DataType) -> Tensor:
    """`1 / (1 - ratio)`, a constant where the ratio is one: then only the mask reads it."""
    known = None if ratio.is_graph_input() else ir.convenience.get_const_tensor(ratio)
    if known is None:
        return op.Reciprocal(1.0 - op.cast(ratio, dtype))
    share = 1 - float(known.numpy().item())
    return op.constant(1 / share if share else math.inf, dtype)


def passed_through(node: ir.Node) -> ir.Value | None:
    """What a node that drops by a counted mask would give in inference; None of another node."""
    if node.domain != DOMAIN or node.op_type != APPLY:
        return None
    mask = node.inputs[0].producer() if node.inputs[0] is not None else None
    return node.inputs[1] if mask is not None and mask.op_type == MASK else None
