"""The settings common to every search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from gradtool.program import Program

Costs: TypeAlias = tuple[int | None, ...]


def never() -> bool:
    """No reason to stop."""
    return False


@dataclass(frozen=True)
class SearchContext:
    """The costs, effort, seed and stop of a search.

    `costs` replaces the steps' FLOPs, `effort` scales the counted work, `seed` decides its random
    part, `stop` ends a search early with its best result.
    """

    costs: Costs | None = None
    effort: float = 1.0
    seed: int = 0
    stop: Callable[[], bool] = never

    def priced(self, program: Program) -> Costs:
        """The cost of each step of a program; None if unknown."""
        return tuple(s.flops for s in program.steps) if self.costs is None else self.costs
