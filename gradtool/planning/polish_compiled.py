"""The annealing of steps, compiled where numba is installed; its answers are the same."""

from __future__ import annotations

from collections.abc import MutableSequence
from decimal import Decimal
from functools import cache
from importlib.util import find_spec
from types import FunctionType
from typing import Any

import numpy as np

from gradtool.planning import polish_kernel

_ROLLS = 1 << 10


def available() -> bool:
    """Whether numba is installed."""
    return find_spec("numba") is not None


@cache
def rolls() -> tuple[float, ...]:
    """-ln(u) for evenly spread u, the same on every machine whatever its C library rounds to."""
    middles = (Decimal(2 * i + 1) / (2 * _ROLLS) for i in range(_ROLLS))
    return tuple(float(-u.ln()) for u in middles)


@cache
def _compiled() -> dict[str, Any]:
    """The functions of the kernel, which call each other compiled; compiled at the first call."""
    import numba

    compiler: Any = numba.njit(cache=True)
    names = dict(vars(polish_kernel))
    parts = [name for name, part in names.items() if isinstance(part, FunctionType)]
    names.update({name: compiler(FunctionType(names[name].__code__, names, name)) for name in parts})
    return names


class Annealer:
    """A schedule in memory, with the functions that change it."""

    def __init__(self, memory: list[int], *, fast: bool) -> None:
        names: dict[str, Any] = _compiled() if fast else vars(polish_kernel)
        self.m: MutableSequence[int] = np.array(memory, np.int64) if fast else list(memory)  # type: ignore[assignment]
        self._rolls = np.array(rolls()) if fast else rolls()
        self._anneal = names["anneal"]
        names["begin"](self.m)

    def anneal(
        self, temperature: float, weight: float, moves: int, *, shifts: int, depth: int
    ) -> None:
        """Try moves at one temperature: see `polish_kernel.anneal`."""
        self._anneal(
            self.m, self._rolls, float(temperature), float(weight), moves, shifts, depth
        )
