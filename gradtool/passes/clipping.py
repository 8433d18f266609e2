"""Gradients within limits, before they are read by updates.

Source: torch.nn.utils.clip_grad_value_ and clip_grad_norm_ (PyTorch 2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.typed import as_tensor

TINY = 1e-6  # added to the norm in the divisor
Gradients = dict[ir.Value, Any]


def clip_values(op: Builder, gradients: Mapping[ir.Value, Any], limit: ir.Value) -> Gradients:
    """Each element of each gradient within `-limit` and `limit`."""
    found: Gradients = {}
    for x, g in gradients.items():
        with op.at(None, stage="update", source="", prefix=f"{x.name}/clip"):
            bound = op.cast(as_tensor(limit), g.dtype)
            found[x] = op.Clip(g, -bound, bound)
    return found


def norm_of(op: Builder, gradients: Iterable[Any], dtype: ir.DataType) -> Any:
    """The Euclidean norm of all elements of some gradients together, a scalar."""
    norms = [op.cast(op.ReduceL2(g, keepdims=0), dtype) for g in gradients]
    return op.ReduceL2(op.concat([op.unsqueeze(norm, 0) for norm in norms], 0), keepdims=0)


def clip_norm(
    op: Builder,
    gradients: Mapping[ir.Value, Any],
    limit: ir.Value,
    whole: Sequence[Any] = (),
    ranks: int = 1,
) -> Gradients:
    """The gradients times `min(1, limit / (norm + 10⁻⁶))`, `norm` over all elements together.

    It is the norm of the gradients, or of the `whole` ones that these are parts of; with more than
    one of `ranks` of all of them together, each with other gradients.  Every update waits for the
    last gradient, so all of them are held until then.
    """
    dtype = limit.dtype
    assert dtype is not None  # noqa: S101 - a scalar input has a type
    with op.at(None, stage="update", source="", prefix="clip"):
        norm = norm_of(op, whole or gradients.values(), dtype)
        if ranks > 1:
            norm = op.Sqrt(op.RanksMean(norm * norm, ranks=ranks) * ranks)
        factor = op.Min(limit / (norm + TINY), op.constant(1.0, dtype))
    found: Gradients = {}
    for x, g in gradients.items():
        with op.at(None, stage="update", source="", prefix=f"{x.name}/clip"):
            found[x] = g * op.cast(factor, g.dtype)
    return found
