"""Plans annealed from several seeds: the last stage of the budget planner.

Seeds share the moves: the outcome of one long annealing varies more than that of the best of some
shorter ones.  Without the extra `solver`, and wherever the answer must not depend on what is
installed, the moves are few enough to be interpreted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gradtool.planning.search.context import SearchContext
from gradtool.planning.search.local.anneal import MOVES, Polished, polish
from gradtool.planning.search.local.compiled import available
from gradtool.program import Program

_SEEDS = 2
_COMPILED = 3_000_000
_INTERPRETED = 20_000
_SMALL = 500


def compiles(context: SearchContext) -> bool:
    """Whether to anneal with numba: where it is installed, if asked for or for much effort."""
    solver = context.solver
    asked = solver in {"compiled", "cp-sat"} or (solver == "auto" and context.effort > 1)
    return asked and available()


def annealed(
    program: Program,
    start: Sequence[int],
    budget: int,
    context: SearchContext,
    *,
    enough: int,
    fast: bool,
) -> Polished | None:
    """The best of the schedules to which several seeds anneal a start, or the start.

    Ends early where the extra work is `enough`.  `fast` moves are compiled, and
    many more than those that are interpreted.  None for programs of too many steps to interpret.
    """
    if not fast and len(program.steps) > _SMALL:
        return None
    moves = _COMPILED if fast else _INTERPRETED
    share = context.effort * moves / MOVES / _SEEDS
    best: Polished | None = None
    for i in range(_SEEDS):
        one = replace(context, effort=share, seed=context.seed * _SEEDS + i)
        found = polish(program, start, budget, one, enough=enough, fast=fast)
        best = found if best is None else min(best, found, key=lambda p: p.rank(budget))
        if context.stop() or (best.peak <= budget and best.extra <= enough):
            break
    return best
