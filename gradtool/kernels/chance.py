"""Random numbers of nodes without a seed: unpredictable, or the same where runs are compared."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

_seeds: ContextVar[Iterator[list[int]] | None] = ContextVar("seeds", default=None)


def unseeded() -> np.random.Generator:
    """The generator of a node that names no seed."""
    seeds = _seeds.get()
    return np.random.default_rng(None if seeds is None else next(seeds))


@contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """Within it, nodes without a seed draw what they draw within any other of the same seed."""
    token = _seeds.set([seed, turn] for turn in itertools.count())
    try:
        yield
    finally:
        _seeds.reset(token)
