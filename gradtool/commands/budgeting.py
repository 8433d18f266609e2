"""What `gradtool recompute` is asked for, as flags: a budget, a slowdown, a plan in a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from gradtool.commands.options import together
from gradtool.errors import UsageError

if TYPE_CHECKING:
    from gradtool.asked import Asked

OPTIMIZERS = ("none", "sgd", "momentum", "adam", "adamw", "adagrad")
SEARCHED = ("min-cut", "optimal")
SOLVERS = ("auto", "native", "compiled", "cp-sat")
_LEAST_SHARE = 0.1  # of a time limit, for the search however long reading takes
GOALS = {
    "plan_file": "--plan", "frontier": "--frontier", "max_batch": "--max-batch",
    "checkpoints": "--checkpoints", "budget": "--budget", "max_slowdown": "--max-slowdown",
}  # fmt: skip


def _seconds(_ctx: click.Context, _param: click.Parameter, given: str | None) -> float | None:
    if given is None:
        return None
    from gradtool.budgets.limits import parse_seconds

    return parse_seconds(given)


budget_options = together(
    click.option("--budget", metavar="SIZE|%|min",
                 help="Fit into this much memory, all that a step needs counted: 8GiB, 60% of what "
                      "keeping everything takes, or as little as can be reached."),
    click.option("--max-slowdown", metavar="%",
                 help="Take as little memory as this much extra work allows, as in 20%."),
    click.option("--plan", "plan_file", metavar="FILE.json", help="Follow the plan in a file."),
    click.option("--frontier", is_flag=True,
                 help="Print what each budget costs; write nothing."),
    click.option("--points", type=click.IntRange(2, 1000), default=20, show_default=True,
                 metavar="N", help="With --frontier: how many budgets."),
    click.option("--max-batch", is_flag=True,
                 help="Print the largest batch that fits into --memory, by plan; write nothing."),
    click.option("--memory", metavar="SIZE", help="With --max-batch: the memory there is."),
    click.option("--optimizer", type=click.Choice(OPTIMIZERS), default="none", show_default=True,
                 help="Update the parameters in place of returning their gradients, as grad does; "
                      "of a model that holds gradients, count this optimizer's state as well."),
    click.option("--cost", metavar="flops|time|FILE", default="flops", show_default=True,
                 help="What extra work is: FLOPs, time measured now on the CPU, or the times in a "
                      "file of gradtool run --profile."),
    click.option("--time-limit", "seconds", metavar="30s", callback=_seconds,
                 help="Search harder, until the command has taken this long: reading and writing "
                      "count, and leave a tenth of it at least."),
    click.option("--solver", type=click.Choice(SOLVERS), default="auto", show_default=True,
                 help="Search in compiled code, and with OR-tools as well (both of the extra "
                      "solver), which goes further; auto: compiled, with --time-limit only."),
    click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
                 help="The seed of the search."),
)  # fmt: skip


def goal_of(options: Mapping[str, Any]) -> str:
    """The one thing that is asked for, by the name of its flag.

    Raises:
        UsageError: nothing is, or two things are.
    """
    found = [goal for goal in GOALS if options[goal]]
    strategy = options["strategy"]
    alone = strategy is not None and not (
        strategy in SEARCHED and found and found[0] in ("budget", "max_slowdown")
    )
    if alone:
        found.append("strategy")
    if not found:
        raise UsageError(
            "say what to compute again: --budget SIZE, --max-slowdown %, --checkpoints NAMES, or "
            "--strategy NAME"
        )
    if len(found) > 1:
        first, second = ({**GOALS, "strategy": f"--strategy {strategy}"}[g] for g in found[:2])
        raise UsageError(f"{first} and {second} do not go together")
    if (options["memory"] is None) == (found[0] == "max_batch"):
        raise UsageError("--max-batch needs --memory SIZE, and nothing else takes it")
    if found[0] in ("frontier", "max_batch") and options["output"] is not None:
        raise UsageError(f"{GOALS[found[0]]} writes nothing: leave out -o")
    return found[0]


def within_limit(options: Mapping[str, Any], spent: float) -> dict[str, Any]:
    """The options with the seconds that `--time-limit` leaves for the search, of those `spent`.

    Writing takes about as long as reading did, so that is set aside too.
    """
    limit = options["seconds"]
    left = limit if limit is None else max(limit - 2 * spent, _LEAST_SHARE * limit)
    return {**options, "seconds": left}


def asked(options: Mapping[str, Any]) -> Asked:
    """What the flags ask for."""
    from gradtool.asked import Asked
    from gradtool.commands.planning import checkpoint_names

    checkpoints = options["checkpoints"]
    return Asked(
        strategy=options["strategy"],
        checkpoints=checkpoint_names(checkpoints) if checkpoints else None,
        budget=options["budget"],
        max_slowdown=options["max_slowdown"],
        plan=options["plan_file"],
        optimizer=options["optimizer"],
        cost=options["cost"],
        seed=options["seed"],
        time_limit=options["seconds"],
        solver=options["solver"],
    )
