"""BatchNormalization by the statistics of the examples of all ranks, and its gradient.

Every rank has as many examples.  They exchange two numbers a channel in forward, and two in
backward; all else is as in one process.

Source: PyTorch's SyncBatchNorm, which sums squares where we combine variances.
"""

from __future__ import annotations

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UsageError
from gradtool.graph.composites import DOMAIN
from gradtool.graph.metadata import SOURCE, STAGE
from gradtool.graph.prune import drop
from gradtool.graph.typed import Tensor, as_tensor
from gradtool.ops.composites.calls import return_instead, take_over
from gradtool.ops.norm.body import channels_last
from gradtool.ops.shared.accumulation import inverse_root, widened

NOTHING = (
    "--sync-batchnorm: no BatchNormalization takes the statistics of a batch (--train-mode makes "
    "them do so)"
)


def synchronized(model: ir.Model, ranks: int) -> ir.Model:
    """A training graph with BatchNormalization over some ranks together.

    Raises:
        UsageError: none takes the statistics of a batch.
    """
    meta, model = model.meta, model.clone()
    model.meta.update(meta)
    op = Builder(model)
    found = [n for n in model.graph if n.domain == DOMAIN and n.op_type in _REWRITES]
    if not found:
        raise UsageError(NOTHING)
    moved: dict[ir.Value, ir.Value] = {}
    for node in found:
        props = node.metadata_props
        stage, source = props.get(STAGE, "forward"), props.get(SOURCE, "")
        with op.at(node, stage=stage, source=source, prefix=node.name or ""), op.arithmetic():
            made = _REWRITES[node.op_type](op, node, ranks)
        take_over(node.outputs, made)
        moved |= zip(node.outputs, made, strict=False)
    return_instead(moved)
    drop(found)
    return model


def _forward(op: Builder, node: ir.Node, ranks: int) -> tuple[Tensor, ...]:
    """In the place of `BatchNormalizationTraining`: its outputs by the moments of all ranks."""
    x, scale, bias, mean, var = map(as_tensor, node.inputs)
    epsilon = node.attributes.get_float("epsilon", 1e-5)
    momentum = node.attributes.get_float("momentum", 0.9)
    own = op.BatchNormalizationTraining(x, scale, bias, mean, var, epsilon=epsilon, momentum=0.0)
    m, v = op.RanksMoments(own[1], own[2], mean, var, ranks=ranks)
    y = op.BatchNormalization(x, scale, bias, m, v, epsilon=epsilon)
    wide = widened(x)
    running = (
        op.cast(op.cast(old, wide) * momentum + op.cast(new, wide) * (1 - momentum), old.dtype)
        for old, new in ((mean, m), (var, v))
    )
    kept = ir.DataType.DOUBLE if x.dtype == ir.DataType.DOUBLE else ir.DataType.FLOAT
    return y, *running, op.cast(m, kept), inverse_root(op, op.cast(v, kept), epsilon)


def _backward(op: Builder, node: ir.Node, ranks: int) -> tuple[Tensor, ...]:
    """In the place of `BatchNormalizationGrad`: dx by the means over all ranks, sums of one's own.

    dx = scale · rstd · (dy - mean(dy) - n · mean(dy · n))
    """
    x, scale, mean, rstd, dy = map(as_tensor, node.inputs)
    epsilon = node.attributes.get_float("epsilon", 1e-5)
    _, dscale, dbias = op.BatchNormalizationGrad(x, scale, mean, rstd, dy, epsilon=epsilon)
    wide, axes = widened(x), [0, *range(2, len(x.shape))]
    x_, dy_, scale_, mean_, rstd_ = (op.cast(t, wide) for t in (x, dy, scale, mean, rstd))
    sums = op.Concat(op.cast(dbias, wide), op.cast(dscale, wide), axis=0)
    means = op.RanksMean(sums, ranks=ranks) / op.length(x_, axes)
    shift, share = op.Split(means, num_outputs=2, axis=0, outputs=2)
    factor, share, shift, back = (
        channels_last(op, t, x) for t in (scale_ * rstd_, share * rstd_, shift, -mean_)
    )
    dx = op.cast((dy_ - (x_ + back) * share - shift) * factor, x.dtype)
    return dx, dscale, dbias


_REWRITES = {"BatchNormalizationTraining": _forward, "BatchNormalizationGrad": _backward}
