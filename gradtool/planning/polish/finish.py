"""The last stages of the budget planner: annealing, then windows where those are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec

from gradtool.errors import GradtoolError
from gradtool.planning.polish.anneal import Polished
from gradtool.planning.polish.seeds import Solver, annealed, compiles
from gradtool.planning.polish.windows import windowed
from gradtool.program import Program


def require(solver: Solver) -> None:
    """Make sure that what a solver cannot do without is installed.

    Raises:
        GradtoolError: it is not.
    """
    if solver == "cp-sat" and find_spec("ortools") is None:
        raise GradtoolError("OR-tools is not installed: pip install 'gradtool[solver]'")


def finished(
    program: Program,
    start: Sequence[int],
    budget: int,
    *,
    costs: Sequence[int | None] | None,
    effort: float,
    seed: int,
    enough: int,
    solver: Solver,
    stop: Callable[[], bool],
) -> Iterator[tuple[str, Polished]]:
    """What each stage makes of a schedule, with the name of the stage; none is worse than before.

    The stages end early where the extra work is `enough` or `stop` says so.
    """
    found = annealed(
        program,
        start,
        budget,
        costs=costs,
        effort=effort,
        seed=seed,
        enough=enough,
        fast=compiles(solver, effort),
        stop=stop,
    )
    if found is not None:
        yield "annealing", found
    if solver == "cp-sat":
        best = start if found is None else found.order
        yield (
            "windows",
            windowed(
                program,
                best,
                budget,
                costs=costs,
                effort=effort,
                seed=seed,
                enough=enough,
                stop=stop,
            ),
        )
