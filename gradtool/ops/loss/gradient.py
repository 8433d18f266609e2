"""Gradients of losses of class scores `[N, C, *d]` against labels `[N, *d]`."""

from __future__ import annotations

from gradtool.emit.builder import Builder
from gradtool.graph.typed import Node, Tensor, as_tensor
from gradtool.operators.losses import LOWEST_LOG
from gradtool.ops.gradients import Gradients, gradient
from gradtool.ops.loss.body import sample_gradients
from gradtool.ops.shared.scatter import add_elements


def _options(node: Node) -> tuple[Tensor | None, str, int | None]:
    """`(weights, reduction, ignored label)`, None where absent."""
    weights = node.inputs[2] if len(node.inputs) > 2 else None
    reduction = node.attributes.get_string("reduction", "mean")
    ignored = node.attributes.get_int("ignore_index") if "ignore_index" in node.attributes else None
    return weights, reduction, ignored


@gradient("SoftmaxCrossEntropyLoss")
def cross_entropy(
    op: Builder, node: Node, dy: Tensor, dlog_prob: Tensor | None = None
) -> Gradients:
    """`lₙ = wₜ (log Σ exp xₙ - xₙₜ)`, t the label of n:  dxₙ = gₙ wₜ (softmax(xₙ) - onehot t).

    gₙ is dy, over the sum of all weights if the losses' mean is taken.  Only scores and labels are
    kept.
    """
    x, labels = node.inputs[:2]
    weights, reduction, ignored = _options(node)
    options = {"reduction": reduction, "ignore_index": ignored}
    dx = op.SoftmaxCrossEntropyLossGrad(x, labels, weights, dy, dlog_prob, **options)
    if weights is None or dy is None:
        return dx, None, None
    losses = op.SoftmaxCrossEntropyLoss(x, labels, reduction="none", ignore_index=ignored)
    return dx, None, _weights(op, node, losses, dy)


@gradient("NegativeLogLikelihoodLoss")
def nll(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`lₙ = -wₜ xₙₜ`, t the label of sample n:  dxₙₜ = -gₙ wₜ, 0 elsewhere.

    gₙ is dy, over the sum of all weights if the losses' mean is taken.
    """
    x, labels = node.inputs[:2]
    weights, reduction, ignored = _options(node)
    g, places = sample_gradients(op, x, labels, weights, dy, reduction, ignored)
    dx = add_elements(op, -g, places, op.shape(x), 1)
    if weights is None:
        return dx
    losses = op.NegativeLogLikelihoodLoss(x, labels, reduction="none", ignore_index=ignored)
    return dx, None, _weights(op, node, losses, dy)


def _weights(op: Builder, node: Node, losses: Tensor, dy: Tensor) -> Tensor:
    """The gradient of the class weights: `dwₜ = Σ gₙ lₙ / wₜ` over the samples n with label t.

    If the losses' mean is taken, each `lₙ / wₜ` is less that mean.
    """
    labels = node.inputs[1]
    weights, reduction, ignored = _options(node)
    counted = None if ignored is None else op.Not(op.Equal(labels, ignored))
    places = labels if counted is None else op.Where(counted, labels, 0)
    if reduction == "mean":
        w = op.Gather(weights, places)
        w = w if counted is None else op.Where(counted, w, 0.0)
        losses = (losses - node.outputs[0]) / op.sum(w, range(len(labels.shape)))
    g = losses * dy
    g = g if counted is None else op.Where(counted, g, 0.0)
    flat = op.reshape(g, [-1]), op.reshape(places, [-1])
    return add_elements(op, *flat, op.shape(as_tensor(weights)), 0)


@gradient("ai.gradtool::BinaryCrossEntropy")
def binary_cross_entropy(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`l = -t · log p - (1 - t) · log(1 - p)`:  dt = dy · (log(1 - p) - log p)."""
    p, t = node.inputs
    here, there = (op.Max(op.Log(v), LOWEST_LOG) for v in (p, 1.0 - p))
    return op.BinaryCrossEntropyGrad(p, t, dy), dy * (there - here)
