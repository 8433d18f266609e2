"""Plans by name on the command line: strategies, and files that `gradtool recompute` wrote."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from gradtool.errors import UsageError
from gradtool.workloads.names import PLANS, SEARCHED, current

if TYPE_CHECKING:
    from gradtool.workloads.planned import Planned
    from gradtool.workloads.plans import Strategy
    from gradtool.workloads.workload import Workload

SUFFIX = ".json"
METAVAR = "|".join((*PLANS, f"FILE{SUFFIX}"))


def plan_name(_ctx: click.Context, _param: click.Parameter, given: str) -> str:
    """The name of a plan.

    Raises:
        UsageError: there is no such plan.
        DeviceError: it is one that is searched for, and there is no native library.
    """
    require(given)
    if current(given) in PLANS or given.endswith(SUFFIX):
        return current(given)
    from gradtool.text.words import suggest

    raise UsageError(
        f"no plan {given!r}{suggest(given, PLANS)}; there are {', '.join(PLANS)}, and files that "
        f"end in {SUFFIX}"
    )


def require(name: str) -> None:
    """Go on only where a plan of a name can be made, before a model is opened for it.

    Raises:
        DeviceError: it is searched for, and there is no native library.
    """
    if name in SEARCHED:
        from gradtool.planning.pareto import requirements

        requirements.require()


def plan_names(
    ctx: click.Context, param: click.Parameter, given: tuple[str, ...]
) -> tuple[str, ...]:
    """The names of plans, each once."""
    return tuple(dict.fromkeys(plan_name(ctx, param, name) for name in given))


def strategy_named(name: str) -> Strategy:
    """Strategy by name; a plan in a file is called by the file.

    Raises:
        UsageError: the file cannot be read.
    """
    from gradtool.workloads.recompute_options import RecomputeOptions

    if not name.endswith(SUFFIX):
        return RecomputeOptions(strategy=name).plans()
    from_file = RecomputeOptions(plan=name).plans()

    def named(work: Workload) -> Planned:
        return replace(from_file(work), name=name)

    return named
