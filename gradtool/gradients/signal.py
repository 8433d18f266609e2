"""Gradients of transforms."""

from __future__ import annotations

from gradtool.errors import UnsupportedGradient
from gradtool.functions._sizes import integers
from gradtool.gradients import gradient, zero_gradient

zero_gradient("HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix")


@gradient("DFT", since=17)
def dft_17(op, node, dy):
    """`y = F x`:  dx = Fᴴ dy; the axis is an attribute."""
    x, length = (*node.inputs, None)[:2]
    return _dft(op, node, dy, x, length, node.attributes.get_int("axis", 1))


@gradient("DFT", since=20)
def dft(op, node, dy):
    """`y = F x`:  dx = Fᴴ dy, which is N times the inverse transform of dy."""
    x, length, axis = (*node.inputs, None, None)[:3]
    known = [-2] if axis is None else integers(axis)
    if known is None:
        raise UnsupportedGradient(node, "its axis is computed; make it a constant")
    return _dft(op, node, dy, x, length, known[0])


def _dft(op, node, dy, x, length, axis):
    options = {name: node.attributes.get_int(name, 0) for name in ("inverse", "onesided")}
    return op.DFTGrad(dy, op.shape(x), length, axis=axis % len(x.shape), **options)


@gradient("STFT")
def stft(op, node, dy):
    """`y[b, f] = F (window · x[b, f·step:])`:  both gradients from those of the frames."""
    x, step, window, length = (*node.inputs, None, None)[:4]
    dx = op.STFTGrad(dy, op.shape(x), step, window, length)
    return dx, None, None if window is None else op.STFTGradWindow(dy, x, step, window)
