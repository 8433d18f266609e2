"""Dropout and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import Window, kernel
from gradtool.ops.shared.rng import skipped, unseeded
from gradtool.ops.shared.select import keep
from gradtool.ops.shared.sums import accumulator, blocks, largest_block
from gradtool.ops.shared.types import Array, Arrays, Specs


def _is_training(training: Array | None) -> bool:
    return training is not None and (not isinstance(training, np.ndarray) or bool(training.item()))


def _view(
    x: Spec,
    strides: tuple[int, ...],
    ratio: Array | None = None,
    training: Array | None = None,
    *,
    out: Specs,
) -> Sequence[Window] | None:
    return [(0, strides)] if len(out) == 1 and not _is_training(training) else None


def _work(
    x: Spec,
    ratio: Array | None = None,
    training: Array | None = None,
    *,
    out: Sequence[Spec | None],
) -> list[Spec]:
    if not _is_training(training):
        return []
    size = (largest_block(x.shape),)
    wide = [] if out[0] is None else [accumulator(x.dtype)] * 2
    return [Spec(size, dtype) for dtype in (np.dtype(np.float64), np.dtype(bool), *wide)]


def _generator(seed: int | None, numbers: int) -> Any:
    """With a seed, the numbers of the standard's reference implementation."""
    if seed is None:
        return unseeded(numbers)
    bits = np.random.MT19937()
    state: Any = np.random.RandomState(seed).get_state(legacy=False)
    bits.state = state
    return skipped(np.random.Generator(bits), numbers)


def _draw(xp: Any, generator: Any, out: Array) -> None:
    """Uniform numbers from the host on any device, so that all have the same mask.

    A device waits for their copy, of 8 bytes per element.
    """
    if xp is np:
        generator.random(out=out)
    else:
        out.set(generator.random(out.shape))


@kernel("Dropout", may_inplace=(0,), strided=True, host=(1, 2), view=_view, work=_work)
def dropout(
    xp: Any,
    x: Array,
    ratio: Array | None = None,
    training: Array | None = None,
    *,
    out: Arrays,
    work: Arrays,
    seed: int | None = None,
) -> None:
    """`(x · mask / (1 - ratio), mask)` in training, else `(x, true)`."""
    y, mask = (*out, None)[:2]
    if not _is_training(training):
        if y is not None:
            xp.copyto(y, x)
        if mask is not None:
            mask.fill(True)
        return
    ratio = 0.5 if ratio is None else float(ratio.item())
    generator = _generator(seed, x.size)
    for index in blocks(x.shape):
        part = x[index]
        uniform, kept, *both = (w[: part.size].reshape(part.shape) for w in work)
        _draw(xp, generator, uniform)
        xp.greater_equal(uniform, ratio, out=kept)
        if mask is not None:
            xp.copyto(mask[index], kept)
        if y is None:
            continue
        wide, result = both
        xp.copyto(wide, part)
        keep(xp, kept, wide, wide, result)
        if ratio < 1:
            xp.multiply(wide, 1 / (1 - ratio), out=wide)
        xp.copyto(y[index], wide, casting="unsafe")
