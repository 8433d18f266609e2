"""Training forms of operators whose standard form is unsafe in stock runtimes.

onnxruntime's BatchNormalization writes its running statistics over its inputs: two nodes that
share them change each other.  A training graph holds the composite instead, whose body is plain
arithmetic and which keeps the statistics that the backward pass reads.

It moves a Transpose past a Pad as if that had no input `axes`: a training graph pads every axis.
CenterCropPad, which it expands, has such a Pad inside where it has an attribute `axes`.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph import walk
from gradtool.graph.constants import integers
from gradtool.graph.devices import place_like
from gradtool.graph.metadata import STAGE
from gradtool.graph.prune import succeed
from gradtool.graph.typed import Tensor, as_tensor


def prepare(model: ir.Model, op: Builder) -> int:
    """Replace each BatchNormalization in training mode, in place. Returns their number.

    Operators that pad some axes keep their names, and get pads or sizes of all axes.
    """
    for node in list(walk.nodes(model.graph)):
        if _pads_some(node):
            _pad_all(op, node)
        elif _crops_some(node):
            _crop_all(op, node)
    nodes = [n for n in walk.nodes(model.graph) if _trains(n)]
    for node in nodes:
        _replace(op, node)
    return len(nodes)


def _trains(node: ir.Node) -> bool:
    standard = node.domain in ("", "ai.onnx") and node.op_type == "BatchNormalization"
    return standard and node.attributes.get_int("training_mode", 0) == 1


def _pads_some(node: ir.Node) -> bool:
    if node.domain not in ("", "ai.onnx") or node.op_type != "Pad" or len(node.inputs) < 4:
        return False
    x = node.inputs[0]
    return node.inputs[3] is not None and x is not None and x.shape is not None


def _pad_all(op: Builder, node: ir.Node) -> None:
    """Give a Pad the pads of every axis, and no input `axes`."""
    x, pads, _, axes = node.inputs
    assert x is not None and x.shape is not None  # noqa: PT018, S101 - `_pads_some` saw to it
    with op.at(node, stage="forward", source="", prefix=node.name or ""):
        whole = op.whole_pads(pads, axes, len(x.shape))
    node.replace_input_with(1, whole if isinstance(whole, ir.Value) else op.constant(whole))
    node.resize_inputs(3)


def _crops_some(node: ir.Node) -> bool:
    if node.domain not in ("", "ai.onnx") or node.op_type != "CenterCropPad":
        return False
    x = node.inputs[0]
    return "axes" in node.attributes and x is not None and x.shape is not None


def _crop_all(op: Builder, node: ir.Node) -> None:
    """Give a CenterCropPad the sizes of every axis, and no attribute `axes`."""
    x, shape = as_tensor(node.inputs[0]), node.inputs[1]
    axes = [a % len(x.shape) for a in node.attributes["axes"].as_ints()]
    known = integers(shape)
    given = dict(zip(axes, known or (), strict=known is not None))
    with op.at(node, stage="forward", source="", prefix=node.name or ""):
        if known is not None and x.shape.is_static():
            whole = op.sizes([given.get(a, n) for a, n in enumerate(x.shape.numpy())])
        else:
            order = [axes.index(a) if a in axes else len(axes) + a for a in range(len(x.shape))]
            whole = op.Gather(op.Concat(shape, op.shape(x), axis=0), order)
    node.replace_input_with(1, whole)
    del node.attributes["axes"]


def _replace(op: Builder, node: ir.Node) -> None:
    """Put the composite in the place of `node`; outputs and node keep their names."""
    with op.at(node, stage="forward", source="", prefix=node.name or ""):
        made = op.BatchNormalizationTraining(
            *node.inputs,
            epsilon=node.attributes.get_float("epsilon", 1e-5),
            momentum=node.attributes.get_float("momentum", 0.9),
        )
    stand_in(made, node)


def stand_in(made: Tensor | Sequence[Tensor], node: ir.Node) -> None:
    """Replace `node` by the producer of these values, which gets its name, readers and devices.

    Outputs keep their names.
    """
    new = made[0].producer()
    assert new is not None and node.graph is not None  # noqa: PT018, S101 - both are in a graph
    place_like(new, node, dict(zip(node.outputs, made, strict=False)))
    new.metadata_props.update(node.metadata_props | {STAGE: "forward"})
    for before, after in zip(node.outputs, made, strict=False):
        if before.name and before.shape is not None:
            after.shape = before.shape
        succeed(after, before)
    label, node.name = node.name, None
    new.name = label
    node.graph.remove(node, safe=True)
