"""Greedy packings, which place each buffer once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from gradtool.planning.packing.gaps import Rule, fill, skyline
from gradtool.planning.packing.problem import RANKS, Numbers, Problem

MOST = 600_000_000


def greedy(problem: Problem) -> Iterator[tuple[Numbers, str]]:
    """Offsets, and their method; the best ones on training graphs come first.

    At least two packings, and more while they look at no more than `MOST` pairs of buffers.
    """
    return islice(_greedy(problem), max(2, MOST // len(problem.size) ** 2))


def _greedy(problem: Problem) -> Iterator[tuple[Numbers, str]]:
    for keys in RANKS:
        yield skyline(problem, problem.order(keys)), f"skyline {keys}"
    first, size = problem.start, problem.size
    for name, order in (
        ("size", np.lexsort((first, -size))),
        ("first use", np.lexsort((-size, first))),
        ("area", problem.order("A")),
    ):
        yield best_fit(problem, order), f"best fit by {name}"


def best_fit(problem: Problem, order: Numbers) -> Numbers:
    """Place buffers one by one into the smallest gap of sufficient size.

    Source: Pisarchyk and Lee 2020 (arXiv:2001.03288), §5.2; unlike them, not only by size.
    """
    found = np.empty_like(order)
    fill(problem, order, found, rule=Rule.TIGHTEST)
    return found
