"""Buffers to pack, as `(size, first step, last step)`, and the least arena by trying all."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st

from gradtool.planning.packing.problem import parts

SMALL = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 5), st.integers(0, 3)), max_size=6)

# `(size, first, last)`: no order of the greedy packings fits these into their load of 7.
SEARCHED = [(3, 5, 5), (2, 4, 5), (2, 0, 2), (2, 0, 4), (2, 0, 3), (1, 1, 3), (2, 3, 5)]

# Packing outwards does not fit these into their load of 9 either; the search does.
ONLY_SEARCHED = [
    (1, 2, 2), (2, 2, 4), (2, 1, 3), (5, 5, 9), (4, 1, 1), (2, 1, 2), (4, 3, 7), (1, 0, 4),
]  # fmt: skip

# Their load is 5, and they need 6.
OUT_OF_REACH = [
    (2, 6, 6), (1, 3, 5), (3, 0, 3), (3, 5, 6), (1, 1, 4), (2, 4, 4), (2, 0, 0), (1, 4, 5),
    (1, 1, 2),
]  # fmt: skip


def columns(spans):
    """Sizes, first and last steps of `(size, first, last)`."""
    return tuple([span[k] for span in spans] for k in range(3))


def lasting(drawn):
    """`(size, first, last)` of `(size, first, more steps)`."""
    return [(size, first, first + more) for size, first, more in drawn]


def load(spans):
    return max((sum(s for s, a, b in spans if a <= t <= b) for _, t, _ in spans), default=0)


def least(spans):
    """The least arena, by letting the buffers fall in every order."""
    best = sum(size for size, _, _ in spans)
    for order in itertools.permutations(spans):
        tops = []
        for size, first, last in order:
            below = [top for top, a, b in tops if a <= last and b >= first]
            tops.append((max(below, default=0) + size, first, last))
        best = min(best, max((top for top, _, _ in tops), default=0))
    return best


def problems(spans):
    """What shares no step with the rest."""
    sizes, first, last = (np.array(c, dtype=np.int64) for c in columns(spans))
    return list(parts(first, last, sizes))


def problem(spans):
    """Buffers none of which can be packed apart."""
    (found,) = problems(spans)
    return found
