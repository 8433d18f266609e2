"""The last stages of the budget planner: annealing, then windows where those are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from gradtool.errors import GradtoolError
from gradtool.planning.search.context import SearchContext, Solver
from gradtool.planning.search.local.anneal import Polished
from gradtool.planning.search.local.seeds import annealed, compiles
from gradtool.program import Program


def require(solver: Solver) -> None:
    """Make sure that what a solver cannot do without is installed.

    Raises:
        GradtoolError: it is not.
    """
    if solver == "cp-sat" and find_spec("ortools") is None:
        raise GradtoolError("OR-tools is not installed: pip install 'gradtool[solver]'")


def finished(
    program: Program, start: Sequence[int], budget: int, context: SearchContext, *, enough: int
) -> Iterator[tuple[str, Polished]]:
    """What each stage makes of a schedule, with the name of the stage; none is worse than before.

    The stages end early where the extra work is `enough`.
    """
    fast = compiles(context)
    found = annealed(program, start, budget, context, enough=enough, fast=fast)
    if found is not None:
        yield "annealing", found
    if context.solver == "cp-sat":
        from gradtool.planning.search.local.windows import windowed

        best = start if found is None else found.order
        yield "windows", windowed(program, best, budget, context, enough=enough)
