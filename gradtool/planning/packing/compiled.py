"""The canonical search, compiled where numba is installed; its answers are the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from types import FunctionType
from typing import Any

import numpy as np

from gradtool.planning.packing import canonical
from gradtool.planning.packing.canonical import STOPPED
from gradtool.planning.packing.problem import Problem

PARTS = (
    "count_in", "lowest", "lowest_top", "support", "undo", "room", "put", "lift", "turn_back",
    "split",
)  # fmt: skip

Search = Callable[..., tuple[int, int, list[int]]]


def available() -> bool:
    """Whether numba is installed."""
    return find_spec("numba") is not None


@cache
def _compiled() -> Search:
    """`canonical.search` with its parts replaced by compiled ones; compiled at the first call."""
    import numba

    compiler: Any = numba.njit(cache=True)
    names = dict(vars(canonical))

    def jit(name: str) -> Any:
        return compiler(FunctionType(getattr(canonical, name).__code__, names, name))

    names.update({name: jit(name) for name in PARTS})
    search: Search = jit("search")
    return search


def search(
    problem: Problem, ranks: list[int], capacity: int, limit: int, *, fast: bool
) -> tuple[int, int, list[int]]:
    """`canonical.search` of a problem; `fast` compiles it where that is possible.

    Where the limit doesn't even let it see each section of each buffer, it is not begun.
    """
    if int((problem.stop - problem.start).sum()) >= limit:
        return STOPPED, limit, []
    sections = len(problem.profile)
    if fast and available():
        return _compiled()(
            problem.start, problem.stop, problem.size, np.array(ranks), sections, capacity, limit
        )
    return canonical.search(
        problem.start.tolist(),
        problem.stop.tolist(),
        problem.size.tolist(),
        ranks,
        sections,
        capacity,
        limit,
    )
