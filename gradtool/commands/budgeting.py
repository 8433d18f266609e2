"""Flags of `gradtool recompute`: a budget, a slowdown, a plan in a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from gradtool.commands.option_rules import GOALS
from gradtool.commands.options import flags, switch, together
from gradtool.commands.plans import checkpoint_names
from gradtool.errors import UsageError
from gradtool.workloads.names import POINTS
from gradtool.workloads.options import options_of
from gradtool.workloads.recompute_options import RecomputeOptions

LEAST_SHARE = 0.1  # of a time limit, for the search however long reading takes

budget_options = together(
    flags(RecomputeOptions),
    switch("--frontier", "Print what each budget costs; write nothing."),
    click.option("--points", type=click.IntRange(2, 1000), default=POINTS, show_default=True,
                 metavar="N", help="With --frontier: how many budgets."),
    switch("--max-batch",
           "Print the largest batch that fits into --memory, by plan; write nothing."),
    click.option("--memory", metavar="SIZE", help="With --max-batch: the memory there is."),
)  # fmt: skip


def goal_of(options: Mapping[str, Any]) -> str:
    """The one goal asked for.

    Raises:
        UsageError: there is none, or it lacks an option it needs.
    """
    goal = next((goal for goal in (*GOALS, "strategy") if options[goal]), None)
    if goal is None:
        raise UsageError(
            "say what to compute again: --budget SIZE, --max-slowdown %, --checkpoints NAMES, or "
            "--strategy NAME"
        )
    if goal == "max_batch" and options["memory"] is None:
        raise UsageError("--max-batch needs --memory SIZE")
    return goal


def within_limit(options: Mapping[str, Any], spent: float) -> dict[str, Any]:
    """The options with the rest of `--time-limit` for the search, after `spent` seconds.

    Writing takes about as long as reading did, so as much is set aside too.
    """
    limit = options["time_limit"]
    left = limit if limit is None else max(limit - 2 * spent, LEAST_SHARE * limit)
    return {**options, "time_limit": left}


def asked(options: Mapping[str, Any]) -> RecomputeOptions:
    """Recompute options by the flags."""
    given = {name: options[name] for name in options_of(RecomputeOptions)}
    checkpoints = checkpoint_names(given["checkpoints"]) if given["checkpoints"] else None
    return RecomputeOptions(**given | {"checkpoints": checkpoints})
