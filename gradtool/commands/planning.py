"""What `mirror` and `recompute` share: models planned by strategies, and a value explained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from gradtool.commands.models import expand
from gradtool.commands.output import color, print_json, print_line

if TYPE_CHECKING:
    from gradtool.commands.workloads import Opened
    from gradtool.plans import Planned, Strategy
    from gradtool.reports.plans import Row

SCHEMA_VERSION = 1


def plan(ctx: click.Context, opened: Opened, strategies: Iterable[Strategy]) -> list[Planned]:
    """The plans of a model, one for each strategy."""
    from gradtool.reports.progress import bar

    chosen, found = list(strategies), []
    with bar(f"planning {opened.name}", total=len(chosen), color=color(ctx)) as shown:
        for strategy in chosen:
            found.append(strategy(opened.work))
            shown.advance()
    return found


def row(opened: Opened, found: Planned) -> Row:
    """A plan beside keeping everything."""
    from gradtool import plans
    from gradtool.reports.plans import Row

    kept = opened.work.kept
    extra = plans.extra_flops(found.plan, kept)
    return Row(opened.name, found.plan, plans.total_flops(kept.program), extra, proof=found.proof)


def explain(ctx: click.Context, opened: Opened, strategy: Strategy, tensor: str, form: str) -> None:
    """Say why a value is kept or computed again, and what computing it again would cost."""
    from gradtool.planning.recompute.explain import explain as facts_of
    from gradtool.reports import explanation

    (found,) = plan(ctx, opened, [strategy])
    facts = facts_of(opened.work.program, tensor, decision=found.decision, schedule=found.schedule)
    if form == "json":
        print_json(explanation.document(facts))
        return
    for line in explanation.lines(facts):
        print_line(line)


def checkpoint_names(given: Sequence[str]) -> list[str]:
    """The values that `--checkpoints a,b` or `@file` names; a line of a file is one name."""
    names: list[str] = []
    for text in given:
        found = expand([text])
        names += found if text.startswith("@") else [n.strip() for n in text.split(",")]
    return [name for name in names if name]
