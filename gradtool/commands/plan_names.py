"""Plans by name on the command line: strategies, and files that `gradtool recompute` wrote."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from gradtool.errors import UsageError

if TYPE_CHECKING:
    from gradtool.plans import Planned, Strategy, Workload

PLANS = ("keep", "none", "mirror", "sqrt", "segments", "min-cut", "optimal")
SUFFIX = ".json"
METAVAR = "|".join((*PLANS, f"FILE{SUFFIX}"))


def plan_name(_ctx: click.Context, _param: click.Parameter, given: str) -> str:
    """The name of a plan.

    Raises:
        UsageError: there is no such plan.
    """
    if given in PLANS or given.endswith(SUFFIX):
        return given
    from gradtool.text import suggest

    raise UsageError(
        f"no plan {given!r}{suggest(given, PLANS)}; there are {', '.join(PLANS)}, and files that "
        f"end in {SUFFIX}"
    )


def plan_names(
    ctx: click.Context, param: click.Parameter, given: tuple[str, ...]
) -> tuple[str, ...]:
    """The names of plans, each once."""
    return tuple(dict.fromkeys(plan_name(ctx, param, name) for name in given))


def strategy_named(name: str) -> Strategy:
    """How to plan by a name; a plan in a file is called by the file.

    Raises:
        UsageError: the file cannot be read.
    """
    from gradtool.asked import Asked

    if not name.endswith(SUFFIX):
        return Asked(strategy=name).plans()
    from_file = Asked(plan=name).plans()

    def named(work: Workload) -> Planned:
        found = from_file(work)
        return replace(found, plan=replace(found.plan, name=name))

    return named
