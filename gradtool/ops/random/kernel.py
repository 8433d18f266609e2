"""Draws from distributions, by PCG64: the same seed gives the same draws."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.ops.kernels import kernel
from gradtool.ops.shared.rng import unseeded
from gradtool.ops.shared.types import Array, Specs


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
        xp: Any,
        *,
        shape: Sequence[int],
        dtype: int = 1,
        seed: float | None = None,
        **parameters: Any,
    ) -> Array:
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
