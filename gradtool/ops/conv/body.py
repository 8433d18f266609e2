"""Composites of the conv family; the gradient by weights in forms with different copies.

x is [N, C, *in], dy [N, M, *out], dw [M, C/G, *kernel] with G groups.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs, composite
from gradtool.graph.typed import Tensor, ints, static
from gradtool.operators.windows import Window
from gradtool.ops.shared.accumulation import widened
from gradtool.ops.shared.symbolic_sizes import dims

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


def _input_shapes(dy: Tensor, w: Tensor, sizes: Tensor) -> Outputs:
    return [(dims(sizes), dy.dtype)]


@composite("ConvGradInput", shapes=_input_shapes)
def conv_grad_input(
    op: Builder, dy: Tensor, w: Tensor, sizes: Tensor, *,
    group: int, strides: Sequence[int], dilations: Sequence[int], pads: Sequence[int],
) -> Tensor:  # fmt: skip
    """`dx` of shape `sizes`: the transposed convolution of dy by w.

    Without strides that is a convolution by w turned round, in which runtimes copy less: a
    transposed one is a product whose result has all taps of all places.  Where w is larger than
    that, turning it round costs more.  Where a size is unknown, dx is made as large as it can be
    and cut at run time.
    """
    given = {"strides": strides, "dilations": dilations, "pads": pads}
    window = Window.of(ints(w.shape[2:]), (), given)
    spatial = dims(sizes)[2:]
    spread = {"group": group, "strides": strides, "dilations": dilations}
    out = dy.shape[2:]
    if static(spatial) and static(out):
        flat = all(s == 1 for s in window.strides)
        if flat and static(w.shape) and math.prod(ints(out)) > w.shape[0] // group:
            return _turned(op, dy, w, window, group, ints(spatial))
        reach = zip(window.covered(out), window.begin, spatial, strict=True)
        ends = [covered - begin - size for covered, begin, size in reach]
        return op.ConvTranspose(
            dy, w, **spread,
            pads=[*window.begin, *(max(0, e) for e in ends)],
            output_padding=[max(0, -e) for e in ends],
        )  # fmt: skip

    full = op.ConvTranspose(dy, w, **spread, output_padding=[s - 1 for s in window.strides])
    starts = op.constant(list(window.begin))
    axes = list(range(2, len(dy.shape)))
    return op.Slice(full, starts, op.Add(op.Slice(sizes, [2], [len(dy.shape)]), starts), axes)


def _turned(
    op: Builder, dy: Tensor, w: Tensor, window: Window, group: int, spatial: Sequence[int]
) -> Tensor:
    """The transposed convolution with strides of 1, as a convolution by w turned round."""
    maps, each, *kernel = ints(w.shape)
    rest = range(2, len(w.shape))
    for axis in rest:
        if w.shape[axis] != 1:
            w = op.Gather(w, op.constant(list(range(kernel[axis - 2]))[::-1]), axis=axis)
    if group == 1:
        w = op.swap_axes(w, 0, 1)
    else:
        w = op.reshape(w, [group, maps // group, each, *kernel])
        w = op.transpose(w, [0, 2, 1, *(axis + 1 for axis in rest)])
        w = op.reshape(w, [group * each, maps // group, *kernel])
    begin = [extent - 1 - b for extent, b in zip(window.extent, window.begin, strict=True)]
    sizes = zip(spatial, ints(dy.shape[2:]), window.extent, begin, strict=True)
    end = [size - count + extent - 1 - b for size, count, extent, b in sizes]
    pads = [max(0, p) for p in (*begin, *end)]
    dx = op.Conv(dy, w, group=group, dilations=window.dilations, pads=pads)
    if min(*begin, *end) >= 0:
        return dx
    starts = [max(0, -b) for b in begin]
    ends = [start + size for start, size in zip(starts, spatial, strict=True)]
    return op.Slice(dx, starts, ends, list(rest))


def _weight_shapes(x: Tensor, dy: Tensor, *, kernel_shape: Sequence[int], group: int) -> Outputs:
    return [([dy.shape[1], x.shape[1] // group, *kernel_shape], x.dtype)]


@composite("ConvGradWeight", shapes=_weight_shapes)
def conv_grad_weight(
    op: Builder, x: Tensor, dy: Tensor, *, kernel_shape: Sequence[int], group: int,
    strides: Sequence[int], dilations: Sequence[int], pads: Sequence[int],
) -> Tensor:  # fmt: skip
    """`dw[M, C/G, *kernel] = Σ x · dy`, over samples and the elements under each tap."""
    given = {"strides": strides, "dilations": dilations, "pads": pads}
    window = Window.of(kernel_shape, (), given)
    return Form(op, window, group)(x, dy)
