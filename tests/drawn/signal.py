"""Transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
from drawn.case import Case, Draw, draws


@draws("DFT")
def dft(d: Draw) -> Case:
    """Along any axis but the last, of any length, to and from real numbers."""
    form = d.one("real", "complex", "onesided", "inverse", "inverse onesided")
    last = 1 if form in ("real", "onesided") else 2
    lead = list(d.shape(1, 3, least=1))
    while np.prod(lead) > 60:
        lead[int(np.argmax(lead))] -= 1
    shape = (*lead, last)
    axis = d.int(0, len(lead) - 1)
    shown = axis - len(shape) if d.flag() else axis
    given: dict[str, Any] = {}
    if "onesided" in form:
        given["onesided"] = 1
    if "inverse" in form:
        given["inverse"] = 1
    length = None
    if d.flag(0.4) or form == "inverse onesided":
        n = shape[axis]
        wanted = d.one(2 * n - 2, 2 * n - 1) if form == "inverse onesided" else d.int(1, n + 3)
        length = d.fixed(np.asarray(max(1, wanted), np.int64))
    opset = d.one(18, 20, 22)
    dtypes = ("float32", "float32", "float64")
    if opset < 20:
        given["axis"] = axis
        return d.case(d.x(shape), length, opset=opset, dtypes=dtypes, rough=64.0, **given)
    where = None if shown == -2 and d.flag() else d.constant(np.asarray(shown, np.int64))
    if where is None:
        where = None if axis == len(shape) - 2 else d.constant(np.asarray(shown, np.int64))
    return d.case(d.x(shape), length, where, opset=opset, dtypes=dtypes, rough=64.0, **given)


@draws("STFT")
def stft(d: Draw) -> Case:
    channels = d.one(1, 1, 2)
    frame, step = d.int(2, 6), d.int(1, 4)
    signal = d.x((d.int(1, 3), frame + d.int(0, 8), channels))
    onesided = 0 if channels == 2 else d.int(0, 1)
    window = d.w((frame,)) if d.flag(0.6) else None
    length = d.constant(np.asarray(frame, np.int64)) if window is None or d.flag() else None
    step_ = d.constant(np.asarray(step, np.int64))
    dtypes = ("float32", "float32", "float64")
    given = {"onesided": onesided}  # absent it is 1, which onnx's own inference forgets
    return d.case(signal, step_, window, length, dtypes=dtypes, rough=64.0, **given)
