"""Convolutions of one channel each, as multiplications and additions of shifted images.

Blocks are a few channels of one image, so that they stay in cache.
"""

from __future__ import annotations

import math

from gradtool.exec.kernels._convolutions import Convolution
from gradtool.program import Spec

BLOCK = 1 << 17  # bytes of one buffer


def channels(conv: Convolution) -> int:
    """Channels of a block."""
    plane = max(math.prod(conv.image[1:]), conv.positions) * conv.wide.itemsize
    return min(conv.group, max(1, BLOCK // max(1, plane)))


def workspace(conv: Convolution) -> list[Spec]:
    """A padded block of x, a block of products, and one of sums."""
    count = channels(conv)
    return [
        Spec((count, *conv.image[1:]), conv.wide),
        Spec((count, *conv.y[2:]), conv.wide),
        Spec((count, *conv.y[2:]), conv.wide),
    ]


def blocks(conv):
    """Image, first and last channel of each block."""
    count = channels(conv)
    for n in range(conv.x[0]):
        for c in range(0, conv.group, count):
            yield n, slice(c, min(c + count, conv.group))


def factors(conv, w):
    """The weights as `[C, *kernel, 1, …]`: one factor per channel and tap."""
    return w.reshape(conv.group, *conv.window.kernel, *(1,) * conv.window.rank)


def padded(xp, conv, x, n, span, image):
    """A block of x with its padding."""
    if not conv.padded:
        return x[n, span]
    inner, outer = conv.interior()
    view = image[: span.stop - span.start]
    xp.copyto(view[inner], x[n, span][outer])
    return view


def forward(xp, conv, x, w, bias, y, work):
    """`y[c] = Σ_t x[c, shifted by t] · w[c, t]`."""
    image, product, total = work
    image.fill(0)
    w = factors(conv, w)
    for n, span in blocks(conv):
        count = span.stop - span.start
        source = padded(xp, conv, x, n, span, image)
        made = y[n, span] if conv.wide == conv.dtype else total[:count]
        term = made
        for tap, where in conv.taps((0, conv.y[2])):
            xp.multiply(source[where], w[(span, *tap)], out=term)
            if term is not made:
                xp.add(made, term, out=made)
            term = product[:count]
        if bias is not None:
            xp.add(made, bias[span].reshape(-1, *(1,) * conv.window.rank), out=made)
        if made.dtype != y.dtype:
            xp.copyto(y[n, span], made, casting="unsafe")


def backward_input(xp, conv, dy, w, x, work):
    """`dx[c, shifted by t] += dy[c] · w[c, t]`."""
    image, product, _ = work
    w = factors(conv, w)
    inner, outer = conv.interior()
    for n, span in blocks(conv):
        count = span.stop - span.start
        target = image[:count] if conv.padded else x[n, span]
        target.fill(0)
        for tap, where in conv.taps((0, conv.y[2])):
            xp.multiply(dy[n, span], w[(span, *tap)], out=product[:count])
            part = target[where]
            xp.add(part, product[:count], out=part)
        if conv.padded:
            x[n, span].fill(0)
            xp.copyto(x[n, span][outer], target[inner], casting="unsafe")


def backward_weight(xp, conv, x, dy, dw, work):
    """`dw[c, t] = Σ x[c, shifted by t] · dy[c]`."""
    image, product, _, sums, total = work
    image.fill(0)
    total.fill(0)
    axes = tuple(range(1, 1 + conv.window.rank))
    for n, span in blocks(conv):
        count = span.stop - span.start
        source = padded(xp, conv, x, n, span, image)
        for tap, where in conv.taps((0, conv.y[2])):
            xp.multiply(source[where], dy[n, span], out=product[:count])
            xp.sum(product[:count], axis=axes, out=sums[:count])
            part = total[(span, *tap)]
            xp.add(part, sums[:count], out=part)
    xp.copyto(dw.reshape(total.shape), total, casting="unsafe")
