"""Elementwise functions of several steps, a block that stays in cache at a time."""

from __future__ import annotations

import math

import numpy as np

from gradtool.exec.kernel import kernel
from gradtool.exec.kernels._sums import BLOCK, accumulator, blocks
from gradtool.program import Spec


def pointwise(name, *, temporaries=0, masks=0, may_inplace=(), **declared):
    """Register `f(xp, *inputs, out, *temporaries, *masks, **attributes)` as a kernel.

    `f` sees one block at a time: inputs broadcast to the output, and scratch of its size, of the
    output's type and bool.  Half-precision blocks are converted to float32 and back.  Inputs named
    by `may_inplace` may be the output: `f` reads them before it writes.
    """

    def work(*inputs, out, **attributes):
        size = min(BLOCK, math.prod(out[0].shape))
        wide = accumulator(out[0].dtype)
        count = temporaries if wide == out[0].dtype else temporaries + len(inputs) + 1
        return [Spec((size,), wide)] * count + [Spec((size,), np.dtype(bool))] * masks

    def register(function):
        def run(xp, *inputs, out, work, **attributes):
            y = out[0]
            shared = [None if i is None else xp.broadcast_to(i, y.shape) for i in inputs]
            narrow = accumulator(y.dtype) != y.dtype
            for index in blocks(y.shape):
                part = y[index]
                scratch = [w[: part.size].reshape(part.shape) for w in work]
                given = [None if i is None else i[index] for i in shared]
                if not narrow:
                    function(xp, *given, part, *scratch, **attributes)
                    continue
                wide = [_widened(xp, i, scratch, y.dtype) for i in given]
                result = scratch.pop(0)
                spare = len(given) - sum(i is not None and i.dtype == y.dtype for i in given)
                function(xp, *wide, result, *scratch[spare:], **attributes)
                xp.copyto(part, result, casting="unsafe")

        run.__name__ = function.__name__
        run.__doc__ = function.__doc__
        declared.setdefault("strided", True)
        kernel(name, may_inplace=may_inplace, work=work, **declared)(run)
        return function

    return register


def _widened(xp, block, scratch, narrow):
    """A half-precision block in float32; others (masks, absent inputs) as they are."""
    if block is None or block.dtype != narrow:
        return block
    wide = scratch.pop(0)
    xp.copyto(wide, block)
    return wide
