"""Gradient of the cross-entropy of a linear layer's scores."""

from __future__ import annotations

from gradtool.emit.builder import Builder
from gradtool.errors import UnsupportedGradient
from gradtool.graph.typed import Node, Tensor, given
from gradtool.ops.gradients import Gradients, gradient
from gradtool.ops.loss.body_linear import total_weight
from gradtool.ops.quantize.gradient import require_frozen


@gradient("ai.gradtool::LinearCrossEntropy")
def linear_cross_entropy(
    op: Builder, node: Node, dloss: Tensor | None, dlse: Tensor | None = None,
    deven: Tensor | None = None,
) -> Gradients:  # fmt: skip
    """`loss = lse - z[label]`, `lse = log Σ exp z`, `even = Σ w (lse - z)`, `z = x W + b`.

    The scores z are computed again, by blocks; of forward only the operands and `lse` are kept.
    """
    x, labels, w = node.inputs[:3]
    bias, weights, low, up, *matrix = (given(node, slot) for slot in range(3, 10))
    require_frozen(op, node, matrix)
    if weights is not None and weights in op.active:
        raise UnsupportedGradient(node, "the weights of its classes have no gradient")
    options = dict(node.attributes)
    options.pop("even", None)
    ignored = options.pop("ignore_index", None)
    loss, lse = op.all_outputs(node, 2)[:2]
    of_label = op.zeros_like(loss) if dloss is None else dloss
    if ignored is not None:
        counted = op.Not(op.Equal(labels, op.constant(ignored.as_int(), labels.dtype)))
        of_label = op.Where(counted, of_label, op.constant(0.0, loss.dtype))
    of_all = of_label if dlse is None else of_label + dlse
    if deven is not None:
        turned = node.attributes.get_int("transB", 0)
        of_all = of_all + deven * total_weight(op, w, weights, loss, turned)
    operands = (x, w, bias, low, up)
    of = [i for i, operand in enumerate(operands) if operand is not None and operand in op.active]
    made = op.LinearCrossEntropyGrad(
        x, labels, w, bias, weights, lse, of_all, of_label, deven, low, up, *matrix,
        outputs=len(of), of=of, **options,
    )  # fmt: skip
    found = dict(zip(of, (made,) if len(of) == 1 else made, strict=True))
    dx, dw, *rest = (found.get(i) for i in range(len(operands)))
    return dx, None, dw, rest[0], None, *rest[1:], *[None] * len(matrix)
