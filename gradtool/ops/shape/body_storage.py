"""Reading an update back from a cache."""

from __future__ import annotations

from gradtool.emit.builder import Builder
from gradtool.graph.composites import composite
from gradtool.graph.typed import Tensor
from gradtool.ops.shared.symbolic_sizes import like_shape


@composite("TensorScatterGrad", shapes=like_shape)
def tensor_scatter_grad(
    op: Builder,
    dy: Tensor,
    shape: Tensor,
    starts: Tensor | None = None,
    *,
    mode: str = "linear",
    axis: int = -2,
) -> Tensor:
    """`dupdate[b, …, i, …] = dy[b, …, starts[b] + i, …]`, around the end if circular."""
    rank = len(dy.shape)
    axis %= rank
    count = op.Gather(shape, op.constant(axis), axis=0)
    steps = op.Range(op.constant(0), count, op.constant(1))
    steps = op.Reshape(steps, [-1 if a == axis else 1 for a in range(rank)])
    if starts is not None:
        steps = op.Reshape(starts, [-1, *[1] * (rank - 1)]) + steps
    if mode == "circular":
        steps = op.Mod(steps, op.Squeeze(op.size_of(dy, axis, axis + 1), [0]))
    return op.GatherElements(dy, op.Expand(steps, shape), axis=axis)
