"""Outputs of a training graph beside its gradients."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from gradtool.graph.training_info import TrainingInfo


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
