"""Gradients of transforms."""

from __future__ import annotations

from gradtool.emit.builder import Builder
from gradtool.errors import UnsupportedGradient
from gradtool.graph.constants import integers
from gradtool.graph.typed import Node, Tensor, given
from gradtool.ops.gradients import Gradients, gradient, zero_gradient

zero_gradient("HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix")


@gradient("DFT", since=17)
def dft_17(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = F x`:  dx = Fᴴ dy; the axis is an attribute."""
    return _dft(op, node, dy, node.attributes.get_int("axis", 1))


@gradient("DFT", since=20)
def dft(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = F x`:  dx = Fᴴ dy, N times the inverse transform of dy."""
    axis = given(node, 2)
    known = [-2] if axis is None else integers(axis)
    if known is None:
        raise UnsupportedGradient(node, "its axis is computed; make it a constant")
    return _dft(op, node, dy, known[0])


def _dft(op: Builder, node: Node, dy: Tensor, axis: int) -> Tensor:
    x, length = node.inputs[0], given(node, 1)
    options = {name: node.attributes.get_int(name, 0) for name in ("inverse", "onesided")}
    return op.DFTGrad(dy, op.shape(x), length, axis=axis % len(x.shape), **options)


@gradient("STFT")
def stft(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y[b, f] = F (window · x[b, f·step:])`:  both gradients from those of the frames."""
    (x, step), window, length = node.inputs[:2], given(node, 2), given(node, 3)
    dx = op.STFTGrad(dy, op.shape(x), step, window, length)
    return dx, None, None if window is None else op.STFTGradWindow(dy, x, step, window)
