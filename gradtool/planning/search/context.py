"""What every search is told besides its question."""

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
    """What counts, and how far to go.

    `costs` replaces the steps' FLOPs, `effort` scales the counted work, `seed` decides its random
    part, `stop` ends a search early with what it has found.
    """

    costs: Costs | None = None
    effort: float = 1.0
    seed: int = 0
    stop: Callable[[], bool] = never

    def priced(self, program: Program) -> Costs:
        """What each step of a program costs; None where nobody knows."""
        return tuple(s.flops for s in program.steps) if self.costs is None else self.costs
