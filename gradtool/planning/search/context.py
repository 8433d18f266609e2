"""What every search is told besides its question."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from gradtool.program import Program

Costs: TypeAlias = tuple[int | None, ...]
Solver: TypeAlias = Literal["auto", "native", "compiled", "cp-sat"]
SOLVERS: tuple[Solver, ...] = get_args(Solver)


def never() -> bool:
    """No reason to stop."""
    return False


@dataclass(frozen=True)
class SearchContext:
    """What counts, and how far to go.

    `costs` replaces the steps' FLOPs, `effort` scales the counted work, `seed` decides its random
    part, `stop` ends a search early with what it has found.  With `solver` `native` the answer does
    not depend on what is installed, nor does it with `auto` up to effort 1; `compiled` anneals with
    numba if it is there, and `cp-sat` also improves windows of the schedule with OR-tools.
    """

    costs: Costs | None = None
    effort: float = 1.0
    seed: int = 0
    stop: Callable[[], bool] = never
    solver: Solver = "auto"

    def priced(self, program: Program) -> Costs:
        """What each step of a program costs; None where nobody knows."""
        return tuple(s.flops for s in program.steps) if self.costs is None else self.costs
