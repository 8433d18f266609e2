"""Draws from distributions, by PCG64: the same seed gives the same draws."""

from __future__ import annotations

import math
import struct

import numpy as np
import onnx_ir as ir

from gradtool.exec.chance import unseeded
from gradtool.exec.kernel import kernel


def generator(seed):
    """A generator; without a seed, an unpredictable one."""
    if seed is None:
        return unseeded()
    return np.random.default_rng(struct.unpack("<I", struct.pack("<f", seed))[0])


def _bytes(*inputs, out, **attributes):
    return 8 * math.prod(out[0].shape)


def _drawn(name, draw):
    """Register `name` and `nameLike`; the shape is an attribute, or that of an input."""

    @kernel(name, temporaries=_bytes)
    def run(xp, *, shape, dtype=1, seed=None, **parameters):
        values = draw(generator(seed), tuple(shape), **parameters)
        return xp.asarray(values.astype(ir.DataType(dtype).numpy()))

    @kernel(f"{name}Like", temporaries=_bytes)
    def run_like(xp, x, *, dtype=None, seed=None, **parameters):
        values = draw(generator(seed), x.shape, **parameters)
        return xp.asarray(values.astype(x.dtype if dtype is None else ir.DataType(dtype).numpy()))


def _normal(rng, shape, mean=0.0, scale=1.0):
    return rng.normal(mean, scale, shape)


def _uniform(rng, shape, low=0.0, high=1.0):
    return rng.uniform(low, high, shape)


_drawn("RandomNormal", _normal)
_drawn("RandomUniform", _uniform)


@kernel("Bernoulli", temporaries=_bytes)
def bernoulli(xp, p, *, dtype=None, seed=None):
    """1 with probability p, else 0."""
    drawn = xp.asarray(generator(seed).random(p.shape)) < p
    return drawn.astype(p.dtype if dtype is None else ir.DataType(dtype).numpy())


@kernel(
    "Multinomial", temporaries=lambda x, *, out, **_: 8 * math.prod(x.shape) + 16 * out[0].bytes
)
def multinomial(xp, x, *, sample_size=1, dtype=6, seed=None):
    """Classes drawn with probability softmax(x), `sample_size` for each row."""
    host = np.asarray(x if xp is np else x.get(), dtype=np.float64)
    powers = np.exp(host - host.max(axis=1, keepdims=True)).cumsum(axis=1)
    draws = generator(seed).random((len(host), sample_size)) * powers[:, -1:]
    chosen = [np.searchsorted(row, d, side="right") for row, d in zip(powers, draws, strict=True)]
    return xp.asarray(np.array(chosen).reshape(draws.shape).astype(ir.DataType(dtype).numpy()))
