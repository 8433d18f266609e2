"""Draws from distributions, by PCG64: the same seed gives the same draws; Dropout, by Threefry."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.graph.specs import Spec
from gradtool.operators.block_size import at_a_time
from gradtool.operators.threefry import BETWEEN, BITS, MASK, PARITY, ROTATIONS, ROUNDS
from gradtool.ops.kernels import Window, kernel
from gradtool.ops.shared.rng import skipped, unseeded
from gradtool.ops.shared.select import keep
from gradtool.ops.shared.sums import BLOCK, accumulator, blocks, largest_block
from gradtool.ops.shared.types import Array, Arrays, Specs


def generator(seed: float | None, numbers: int | None = None) -> Any:
    """A generator; without a seed, an unpredictable one (see `unseeded`)."""
    if seed is None:
        return unseeded(numbers)
    return np.random.default_rng(struct.unpack("<I", struct.pack("<f", seed))[0])


def _bytes(*, out: Specs) -> int:
    return 8 * math.prod(out[0].shape)


def _drawn(name: str, draw: Callable[..., Any]) -> None:
    """Register `name` and `nameLike`; the shape is an attribute, or that of an input."""

    @kernel(name, temporaries=_bytes)
    def run(
        xp: Any, *,
        shape: Sequence[int], dtype: int = 1, seed: float | None = None, **parameters: Any,
    ) -> Array:  # fmt: skip
        values = draw(generator(seed), tuple(shape), **parameters)
        return xp.asarray(values.astype(ir.DataType(dtype).numpy()))

    @kernel(f"{name}Like", temporaries=_bytes)
    def run_like(
        xp: Any, x: Array, *, dtype: int | None = None, seed: float | None = None, **parameters: Any
    ) -> Array:
        values = draw(generator(seed), x.shape, **parameters)
        return xp.asarray(values.astype(x.dtype if dtype is None else ir.DataType(dtype).numpy()))


def _normal(rng: Any, shape: Sequence[int], mean: float = 0.0, scale: float = 1.0) -> Array:
    return rng.normal(mean, scale, shape)


def _uniform(rng: Any, shape: Sequence[int], low: float = 0.0, high: float = 1.0) -> Array:
    return rng.uniform(low, high, shape)


_drawn("RandomNormal", _normal)
_drawn("RandomUniform", _uniform)


@kernel("Bernoulli", temporaries=_bytes)
def bernoulli(xp: Any, p: Array, *, dtype: int | None = None, seed: float | None = None) -> Array:
    """1 with probability p, else 0."""
    drawn = xp.asarray(generator(seed, p.size).random(p.shape)) < p
    return drawn.astype(p.dtype if dtype is None else ir.DataType(dtype).numpy())


@kernel("Multinomial", temporaries=lambda x, *, out: 8 * math.prod(x.shape) + 16 * out[0].bytes)
def multinomial(
    xp: Any, x: Array, *, sample_size: int = 1, dtype: int = 6, seed: float | None = None
) -> Array:
    """Classes drawn with probability softmax(x), `sample_size` for each row."""
    host = np.asarray(x if xp is np else x.get(), dtype=np.float64)
    powers = np.exp(host - host.max(axis=1, keepdims=True)).cumsum(axis=1)
    numbers = len(host) * sample_size
    draws = generator(seed, numbers).random((len(host), sample_size)) * powers[:, -1:]
    chosen = [np.searchsorted(row, d, side="right") for row, d in zip(powers, draws, strict=True)]
    return xp.asarray(np.array(chosen).reshape(draws.shape).astype(ir.DataType(dtype).numpy()))


def _is_training(training: Array | None) -> bool:
    return training is not None and (not isinstance(training, np.ndarray) or bool(training.item()))


def _view(
    x: Spec, strides: tuple[int, ...], ratio: Array | None = None, training: Array | None = None, *,
    out: Specs,
) -> Sequence[Window] | None:  # fmt: skip
    return [(0, strides)] if len(out) == 1 and not _is_training(training) else None


def _work(
    x: Spec, ratio: Array | None = None, training: Array | None = None, *,
    out: Sequence[Spec | None],
) -> list[Spec]:  # fmt: skip
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
    xp: Any, x: Array, ratio: Array | None = None, training: Array | None = None, *,
    out: Arrays, work: Arrays, seed: int | None = None,
) -> None:  # fmt: skip
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


WORD = np.dtype(np.uint32)


def _threefry_work(*, out: Specs) -> Specs:
    size = min(at_a_time(BLOCK), math.prod(out[0].shape))
    return [Spec((size,), WORD)] * 3


@kernel("ai.gradtool::DropoutMask", host=(0, 1, 2, 3, 4), work=_threefry_work)
def dropout_mask(
    xp: Any, shape: Array, ratio: Array, seed: Array, step: Array, part: Array, *,
    out: Arrays, work: Arrays, stream: int,
) -> None:  # fmt: skip
    """Keep mask of Dropout: false where the word of an element is less than `ratio · 2³²`."""
    mask = out[0].reshape(-1)
    bound = int(float(ratio.item()) * (1 << BITS))
    if not 0 < bound <= MASK:
        mask.fill(bound <= 0)
        return
    key = int(seed.item()) & MASK, stream & MASK
    counter, first = int(step.item()) & MASK, int(part.item()) * mask.size
    size = at_a_time(BLOCK)
    for start in range(0, mask.size, size):
        block = mask[start : start + size]
        a, b, spare = (w[: block.size] for w in work)
        spare.fill(1)
        xp.cumsum(spare, dtype=WORD, out=a)
        a += WORD.type((first + start - 1) & MASK)
        b.fill(counter)
        threefry(xp, key, a, b, spare)
        xp.greater_equal(a, WORD.type(bound), out=block)


def threefry(xp: Any, key: tuple[int, int], a: Array, b: Array, spare: Array) -> None:
    """Replace counters `(a, b)` by their two words, in place."""
    keys = (*key, key[0] ^ key[1] ^ PARITY)
    a += WORD.type(keys[0])
    b += WORD.type(keys[1])
    for turn in range(ROUNDS):
        by = ROTATIONS[turn % len(ROTATIONS)]
        a += b
        xp.left_shift(b, WORD.type(by), out=spare)
        xp.right_shift(b, WORD.type(BITS - by), out=b)
        b |= spare
        b ^= a
        if (turn + 1) % BETWEEN == 0:
            times = (turn + 1) // BETWEEN
            a += WORD.type(keys[times % 3])
            b += WORD.type((keys[(times + 1) % 3] + times) & MASK)
