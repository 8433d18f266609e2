"""The gradient of a convolution by its weights, in forms with different copies.

x is [N, C, *in], dy [N, M, *out], dw [M, C/G, *kernel] with G groups.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gradtool.emit.builder import Builder
from gradtool.graph.typed import Tensor, ints, static
from gradtool.operators.windows import Window
from gradtool.ops.shared.accumulation import widened

TAPS = 27  # more of them are more nodes than a convolution is worth
CHANNELS = 8  # fewer make products too thin to pay for their slices


@dataclass(frozen=True)
class Form:
    """Forms of dw, given the window of the forward convolution and its groups."""

    op: Builder
    window: Window
    group: int

    def __call__(self, x: Tensor, dy: Tensor) -> Tensor:
        """The form that suits the sizes.

        One sample after the other copies one sample at a time, but adds to all of dw as often as
        there are samples; that pays unless dw is larger than what would be copied.
        """
        kernel = self.window.kernel
        if not static((*x.shape, *dy.shape)):
            return self.convolved(x, dy)
        batch, *image = ints(x.shape)
        maps, *out = ints(dy.shape[1:])
        each = image[0] // self.group
        weights, taps = maps * each * math.prod(kernel), math.prod(kernel)
        by_taps = taps <= TAPS and (each >= CHANNELS or self.group > 1)
        copied = math.prod(image) + maps * math.prod(out)
        form: Callable[[Tensor, Tensor], Tensor] = self.tapped if by_taps else self.convolved
        if batch == 1 or weights > copied:
            return form(x, dy)
        return self.summed(x, dy, form)

    def convolved(self, x: Tensor, dy: Tensor) -> Tensor:
        """The convolution of x by dy: batch and channels trade places, strides and dilations."""
        op, group, window = self.op, self.group, self.window
        rest = range(2, len(x.shape))
        if group == 1:
            x = self.exchanged(x)  # C, N, *in
        else:
            parts = [x.shape[0], group, x.shape[1] // group, *x.shape[2:]]  # N, G, C/G, *in
            x = op.transpose(op.reshape(x, parts), [2, 1, 0, *(a + 1 for a in rest)])
            x = op.reshape(x, [x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:]])  # C/G, G·N, *in
        dw = op.Conv(
            x, self.exchanged(dy), group=group, strides=window.dilations,
            dilations=window.strides, pads=[*window.begin, *window.end],
        )  # fmt: skip
        return op.crop(op.swap_axes(dw, 0, 1), window.kernel, rest)  # M, C/G, *≥kernel

    def exchanged(self, x: Tensor) -> Tensor:
        """`x` with batch and channels in each other's place."""
        if 1 in (x.shape[0], x.shape[1]):
            return self.op.reshape(x, [x.shape[1], x.shape[0], *x.shape[2:]])
        return self.op.swap_axes(x, 0, 1)

    def tapped(self, x: Tensor, dy: Tensor) -> Tensor:
        """A product of matrices for each tap: dy by the elements of x that the tap meets."""
        op, group, window = self.op, self.group, self.window
        batch, channels, *image = ints(x.shape)
        maps, out = dy.shape[1], ints(dy.shape[2:])
        each = channels // group
        rest = range(3, 3 + len(image))
        rows = batch * math.prod(out)

        x = op.reshape(x, [batch, group, each, *image])
        x = op.transpose(x, [1, 0, *rest, 2])  # G, N, *in, C/G
        pads = [0, 0, *window.begin, 0, 0, 0, *window.end, 0]
        x = op.pad(x, pads) if any(pads) else x
        dy = op.reshape(self.exchanged(dy), [group, maps // group, rows])

        def product(tap: tuple[int, ...]) -> Tensor:
            starts = [t * d for t, d in zip(tap, window.dilations, strict=True)]
            spans = zip(starts, out, window.strides, strict=True)
            ends = [start + (count - 1) * stride + 1 for start, count, stride in spans]
            met = x
            if list(x.shape[2:-1]) != list(out) or any(starts):
                met = op.Slice(x, starts, ends, [a - 1 for a in rest], list(window.strides))
            return op.MatMul(dy, op.reshape(met, [group, rows, each]))  # G, M/G, C/G

        products = [
            op.unsqueeze(product(tap), 0)
            for tap in itertools.product(*(range(k) for k in window.kernel))
        ]
        dw = op.concat(products, 0)
        dw = op.transpose(dw, [1, 2, 3, 0]) if len(products) > 1 else dw
        return op.reshape(dw, [maps, each, *window.kernel])

    def summed(self, x: Tensor, dy: Tensor, form: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """The sum of a form over samples: a Scan, whose body sees one."""
        op, wide = self.op, widened(x)
        shape = [dy.shape[1], x.shape[1] // self.group, *self.window.kernel]
        zeros = op.ConstantOfShape(op.sizes(shape), value=np.zeros(1, wide.numpy()))
        dw = op.formal("sum", shape, wide)
        one, its = (op.formal(n, v.shape[1:], v.dtype) for n, v in (("x", x), ("dy", dy)))
        with op.body([dw, one, its]) as body:
            term = form(op.unsqueeze(one, 0), op.unsqueeze(its, 0))
            body.outputs.append(dw + op.cast(term, wide))
        return op.cast(op.Scan(zeros, x, dy, body=body, num_scan_inputs=2), x.dtype)
