"""The annealing of steps, compiled where numba is installed; its answers are the same."""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from importlib.util import find_spec
from types import FunctionType
from typing import Any

import numpy as np

from gradtool.planning.search.local import held, moves, search
from gradtool.planning.search.local.memory import BEST, BEST_EXTRA, BEST_LENGTH, BITS, LENGTH, ORDER

_ROLLS = 1 << 10


def available() -> bool:
    """Whether numba is installed."""
    return find_spec("numba") is not None


@cache
def rolls() -> tuple[float, ...]:
    """-ln(u) for evenly spread u, the same on every machine whatever its C library rounds to."""
    middles = (Decimal(2 * i + 1) / (2 * _ROLLS) for i in range(_ROLLS))
    return tuple(float(-u.ln()) for u in middles)


def _interpreted() -> dict[str, Any]:
    """The functions of the kernel by name."""
    return {**vars(held), **vars(moves), **vars(search)}


@cache
def _compiled() -> dict[str, Any]:
    """The same, calling each other compiled; compiled at the first call."""
    import numba

    compiler: Any = numba.njit(cache=True)
    names = _interpreted()
    parts = [name for name, part in names.items() if isinstance(part, FunctionType)]
    names.update({n: compiler(FunctionType(names[n].__code__, names, n)) for n in parts})
    return names


class Annealer:
    """A schedule in memory, with the functions that change it."""

    def __init__(self, memory: list[int], *, fast: bool) -> None:
        names = _compiled() if fast else _interpreted()
        self.m: Any = np.array(memory, dtype=np.int64) if fast else memory
        self._rolls: Any = np.array(rolls()) if fast else rolls()
        self._anneal = names["anneal"]
        names["begin"](self.m)
        names["keep_best"](self.m)

    def anneal(self, temperature: float, weight: float, moves: int) -> None:
        """Try moves at one temperature: see `search.anneal`."""
        self._anneal(self.m, self._rolls, temperature, weight, moves)

    @property
    def best_extra(self) -> int | None:
        """The cost of what runs again in the best schedule that fits; None if none was found."""
        length = int(self.m[BEST_LENGTH])
        return int(self.m[BEST_EXTRA]) if length else None

    def best(self) -> tuple[int, ...]:
        """The steps of the best schedule that fits, in running order; none if none was found."""
        begin = self.m[BEST]
        return tuple(int(s) for s in self.m[begin : begin + self.m[BEST_LENGTH]])

    def current(self) -> tuple[int, ...]:
        """The steps of the schedule as it is now."""
        begin = self.m[ORDER]
        return tuple(int(i) >> BITS for i in self.m[begin : begin + self.m[LENGTH] - 1])
