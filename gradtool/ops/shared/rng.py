"""Random numbers of nodes without a seed: unpredictable, or the same where runs are compared."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

_seeds: ContextVar[Iterator[list[int]] | None] = ContextVar("seeds", default=None)
_part: ContextVar[int] = ContextVar("part", default=0)


def unseeded(numbers: int | None = None) -> np.random.Generator:
    """The generator of a node without a seed.

    `numbers` are those that the node takes from it, one 64-bit word each, examples along the first
    axis; None where they cannot be counted.  A part of a batch then has the numbers that it has
    within the whole, or others than any other part.
    """
    seeds, part = _seeds.get(), _part.get()
    if seeds is None:
        return np.random.default_rng()
    seed = next(seeds)
    if numbers is None:
        return np.random.default_rng([*seed, part] if part else seed)
    bits = np.random.PCG64(np.random.SeedSequence(seed))
    return np.random.Generator(bits.advance(part * numbers))


def skipped(generator: Any, numbers: int) -> Any:
    """A generator of another kind, from where this part of a batch begins."""
    for _ in range(_part.get()):
        generator.random(numbers)
    return generator


@contextmanager
def repeatable(seed: int, part: int = 0) -> Iterator[None]:
    """Context of a seed: nodes without one draw the same within any context of the same seed.

    `part` counts the parts of one size that a batch is computed in at the same time.
    """
    token = _seeds.set([seed, turn] for turn in itertools.count())
    place = _part.set(part)
    try:
        yield
    finally:
        _seeds.reset(token)
        _part.reset(place)
