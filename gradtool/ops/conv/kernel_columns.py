"""Convolution as matrix products: columns of window contents, block by block.

Narrow types are widened to float32 on the way into the buffer of columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradtool.ops.conv.kernel_sizes import Convolution
from gradtool.ops.shared.types import Array, Arrays

EVERY = slice(None)


def widen(xp: Any, w: Array, work: Array) -> Array:
    """The weights as matrices in the wide type."""
    if work.size:
        xp.copyto(work, w.reshape(work.shape))
        return work
    return w


def gather(
    xp: Any, conv: Convolution, x: Array, block: Sequence[int], image: Array, columns: Array
) -> Array:
    """The columns of a block of x, `[G, C/G · taps, images · rows · …]`."""
    n0, n1, r0, r1 = block
    rows = (r1 - r0, *conv.y[3:])
    shape = (conv.x[1], *conv.window.kernel, n1 - n0, *rows)
    view = columns[: math.prod(shape)].reshape(shape)
    source = x[n0:n1]
    if conv.padded:
        images = image[: n1 - n0]
        if r0 == 0:
            inner, outer = conv.interior()
            xp.copyto(images[EVERY, *inner], source[EVERY, *outer])
        source = images
    source = source[:, :, r0 * conv.window.strides[0] :]
    every, channel, *steps = source.strides
    windows = xp.lib.stride_tricks.as_strided(
        source,
        shape,
        (
            channel,
            *(d * s for d, s in zip(conv.window.dilations, steps, strict=True)),
            every,
            *(t * s for t, s in zip(conv.window.strides, steps, strict=True)),
        ),
    )
    xp.copyto(view, windows)
    return view.reshape(conv.group, conv.weights[2], -1)


def scatter(
    xp: Any, conv: Convolution, columns: Array, block: Sequence[int], image: Array, x: Array
) -> None:
    """Add the columns of a block to x, where `gather` would have read them."""
    n0, n1, r0, r1 = block
    view = columns.reshape(conv.x[1], *conv.window.kernel, n1 - n0, r1 - r0, *conv.y[3:])
    target = image[: n1 - n0] if conv.padded else x[n0:n1]
    if r0 == 0:
        target.fill(0)
    for tap, where in conv.taps((r0, r1)):
        part = target[EVERY, *where]
        xp.add(part, view[EVERY, *tap].swapaxes(0, 1), out=part)
    if conv.padded and r1 == conv.y[2]:
        inner, outer = conv.interior()
        x[n0:n1].fill(0)
        xp.copyto(x[n0:n1][EVERY, *outer], target[EVERY, *inner], casting="unsafe")


def matrices(conv: Convolution, y: Array, block: Sequence[int], products: Array) -> Array:
    """A block of y as matrices `[G, M/G, images · rows · …]`: a view, or room in `products`."""
    n0, n1, r0, r1 = block
    rest = math.prod(conv.y[3:])
    if conv.direct:
        flat = y.reshape(-1, conv.group, conv.weights[1], conv.positions)
        return flat[n0, :, :, r0 * rest : r1 * rest]
    width = (n1 - n0) * (r1 - r0) * rest
    return products[: conv.y[1] * width].reshape(conv.group, conv.weights[1], width)


def laid_out(
    conv: Convolution, y: Array, block: Sequence[int], matrix: Array
) -> tuple[Array, Array]:
    """The block of y as it lies, and its matrices, with axes in the same order."""
    n0, n1, r0, r1 = block
    rest = math.prod(conv.y[3:])
    flat = y.reshape(-1, conv.y[1], conv.positions)[n0:n1, :, r0 * rest : r1 * rest]
    return flat, matrix.reshape(conv.y[1], n1 - n0, -1).transpose(1, 0, 2)


def read(xp: Any, conv: Convolution, dy: Array, block: Sequence[int], products: Array) -> Array:
    """A block of dy as matrices."""
    matrix = matrices(conv, dy, block, products)
    if not conv.direct:
        part, made = laid_out(conv, dy, block, matrix)
        xp.copyto(made, part)
    return matrix


def plain(conv: Convolution) -> bool:
    """Whether the convolution is one matrix product per image, where everything lies."""
    return conv.pointwise and conv.wide == conv.dtype


def forward(
    xp: Any, conv: Convolution, x: Array, w: Array, bias: Array | None, y: Array, work: Arrays
) -> None:
    """Write y."""
    if plain(conv):
        g, m, c = conv.weights
        images = x.reshape(conv.x[0], g, c, conv.positions)
        xp.matmul(w.reshape(g, m, c), images, out=y.reshape(conv.x[0], g, m, conv.positions))
        if bias is not None:
            xp.add(y, bias.reshape(-1, *(1,) * conv.window.rank), out=y)
        return
    columns, image, products, wide = work
    image.fill(0)
    weights = widen(xp, w, wide).reshape(conv.weights)
    for block in conv.blocks():
        matrix = matrices(conv, y, block, products)
        xp.matmul(weights, gather(xp, conv, x, block, image, columns), out=matrix)
        part, made = laid_out(conv, y, block, matrix)
        if bias is not None:
            made = part if conv.direct else made
            xp.add(made, bias[:, None], out=part, casting="unsafe")
        elif not conv.direct:
            xp.copyto(part, made, casting="unsafe")


def backward_input(xp: Any, conv: Convolution, dy: Array, w: Array, x: Array, work: Arrays) -> None:
    """Write the gradient of x: each window's share is added where the window lay."""
    if plain(conv):
        g, m, c = conv.weights
        shares = dy.reshape(conv.x[0], g, m, conv.positions)
        weights = w.reshape(g, m, c).swapaxes(1, 2)
        xp.matmul(weights, shares, out=x.reshape(conv.x[0], g, c, conv.positions))
        return
    columns, image, products, wide = work
    if not dy.size:
        x.fill(0)
    weights = widen(xp, w, wide).reshape(conv.weights).swapaxes(1, 2)
    for block in conv.blocks():
        matrix = read(xp, conv, dy, block, products)
        size = conv.column * matrix.shape[2]
        made = columns[:size].reshape(conv.group, conv.weights[2], -1)
        xp.matmul(weights, matrix, out=made)
        scatter(xp, conv, made, block, image, x)


def backward_weight(
    xp: Any, conv: Convolution, x: Array, dy: Array, dw: Array, work: Arrays
) -> None:
    """Write the gradient of the weights, summed over blocks in their order."""
    columns, image, products, part, total = work
    image.fill(0)
    total = (total if total.size else dw).reshape(conv.weights)
    first = True
    for block in conv.blocks():
        matrix = read(xp, conv, dy, block, products)
        if conv.pointwise and conv.direct:
            filled = matrices_of_x(conv, x, block)
        else:
            filled = gather(xp, conv, x, block, image, columns)
        xp.matmul(matrix, filled.swapaxes(1, 2), out=total if first else part)
        if not first:
            xp.add(total, part, out=total)
        first = False
    if first:
        total.fill(0)
    if conv.wide != conv.dtype:
        xp.copyto(dw.reshape(conv.weights), total, casting="unsafe")


def matrices_of_x(conv: Convolution, x: Array, block: Sequence[int]) -> Array:
    """The columns of a block of one image: the image itself."""
    n, _, r0, r1 = block
    rest = math.prod(conv.y[3:])
    return x[n].reshape(conv.group, conv.weights[2], -1)[:, :, r0 * rest : r1 * rest]
