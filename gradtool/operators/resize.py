"""The inference rule of Resize, in place of that of onnx-shape-inference 0.4."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.operators.resampling import common_scale

Dim = Any  # int | ir.SymbolicDim: the library has no types


def infer(library: Any, ctx: Any, node: ir.Node) -> None:
    """The library's scales sizes exactly; every runtime does so in float32, where 0.7 · 10 is 7."""
    library(ctx, node)
    x, y = node.inputs[0], node.outputs[0]
    if x is None or x.shape is None:
        return
    axes = [a % len(x.shape) for a in node.attributes.get_ints("axes", range(len(x.shape)))]
    want = _wanted(ctx, node, [x.shape[axis] for axis in axes])
    if want is not None:
        sizes = dict(zip(axes, want, strict=True))
        ctx.set_shape(y, ir.Shape(sizes.get(axis, n) for axis, n in enumerate(x.shape)))


def _wanted(ctx: Any, node: ir.Node, have: Sequence[Dim]) -> list[Dim] | None:
    """The new sizes, where scales or the one scale of a policy give them."""
    scales, sizes = [*node.inputs[2:], None, None][:2]
    factors = None if scales is None else ir.convenience.get_const_tensor(scales)
    if factors is not None and factors.size == len(have):
        pairs = zip(have, factors.numpy().ravel(), strict=True)
        return [_scaled(n, np.float32(factor)) for n, factor in pairs]
    policy = node.attributes.get_string("keep_aspect_ratio_policy", "stretch")
    known = None if sizes is None else ctx.get_symbolic_value(sizes)
    if policy == "stretch" or known is None:
        return None
    if not all(isinstance(n, int) for n in (*have, *known)):
        return [ctx.new_symbolic_dim() for _ in have]
    scale = common_scale(have, known, policy)
    return [int(float(scale * np.float32(n)) + 0.5) for n in have]


def _scaled(size: Dim, scale: np.float32) -> Dim:
    """A size times a scale, rounded down; an expression is multiplied by a fraction."""
    if isinstance(size, int):
        return int(np.float32(size) * scale)
    ratio = fraction(scale)
    return size * ratio.numerator // ratio.denominator


def fraction(scale: np.float32) -> Fraction:
    """A simple fraction equal to `scale` in float32."""
    limit = 1
    while np.float32(found := Fraction(float(scale)).limit_denominator(limit)) != scale:
        limit *= 2
    return found
