"""The forward model inside of a training graph, in the form for inference.

BatchNormalization takes the running statistics, Dropout lets everything through.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from gradtool import shapes
from gradtool.emit.builder import Builder
from gradtool.errors import UsageError
from gradtool.graph import walk
from gradtool.graph.composites import DOMAIN
from gradtool.graph.prune import prune
from gradtool.graph.randomness import passed_through
from gradtool.graph.stages import is_backward
from gradtool.graph.training_info import TrainingInfo
from gradtool.passes.train_mode import infer_by
from gradtool.passes.training_forms import stand_in
from gradtool.shapes.folding import forget


def evaluation(model: ir.Model, *, loss: bool = True) -> ir.Model:
    """The forward part of a training graph; the model given is left as it is.

    Without `loss`, neither that nor its labels.  Trained values stay marked as such, so that
    nothing is computed from them ahead.

    Raises:
        UsageError: nothing is left.
    """
    meta, model = model.meta, model.clone()
    model.meta.update(meta)
    graph, info = model.graph, TrainingInfo.of(model)
    outputs = [v for v in graph.outputs if _is_forward(v) and (loss or v.name != info.loss)]
    outputs = [v for v in outputs if v.name not in info.of_next]
    if not outputs:
        but = "its gradients" if loss else "loss and gradients, and the labels are missing"
        raise UsageError(f"the graph has no output but {but}: there is nothing to evaluate")
    graph.outputs.clear()
    graph.outputs.extend(outputs)
    prune(model)
    op = Builder(model, stage="forward")
    for infers in (_alone, _infers):
        for node in list(walk.nodes(graph)):
            infers(node, op)
        prune(model)
    read = [v for v in graph.inputs if v.uses() or v.is_graph_output()]
    graph.inputs.clear()
    graph.inputs.extend(read)
    prune(model)
    replace(info, optimizer=None, loss=info.loss if loss else None).write(model)
    trained = {*info.gradients, *info.state}
    forget(graph, [v for v in graph.initializers.values() if v.name in trained])
    shapes.infer(model)
    return model


def _is_forward(value: ir.Value) -> bool:
    node = value.producer()
    return node is None or not is_backward(node)


def _alone(node: ir.Node, op: Builder) -> None:
    """Replace statistics of the examples of all ranks by running ones, in place."""
    if node.domain == DOMAIN and node.op_type == "RanksMoments":
        with op.at(node, stage="forward", source="", prefix=node.name or ""):
            made = op.Identity(node.inputs[2]), op.Identity(node.inputs[3])
        stand_in(made, node)


def _infers(node: ir.Node, op: Builder) -> None:
    """Turn a node from training to inference, in place."""
    kept = passed_through(node)
    if kept is not None:
        with op.at(node, stage="forward", source="", prefix=node.name or ""):
            made = op.Identity(kept)
        stand_in((made,), node)
    elif node.op_type in ("BatchNormalizationTraining", "BatchNormalization"):
        infer_by(node, op)
    elif node.domain in ("", "ai.onnx") and node.op_type == "Dropout" and len(node.inputs) > 2:
        node.replace_input_with(2, op.constant(np.array(False)))
