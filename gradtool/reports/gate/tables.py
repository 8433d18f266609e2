"""The verdicts as a table, and below it the growth in each failed case."""

from __future__ import annotations

from collections.abc import Iterable

from gradtool.check.cases import Case
from gradtool.check.sentences import LONGEST, SHOWN, change, deciding
from gradtool.check.thresholds import format_amount
from gradtool.check.verdicts import Judged
from gradtool.text.layout import Column
from gradtool.text.names import shorten
from gradtool.text.table import Table

SHOUTED = ("grew", "over limit", "error")  # in capitals: colour is never the only signal


def verdict_table(judged: Iterable[Judged]) -> Table:
    """A row a case.  Where another metric than the peak decides, the plan's cell says which."""
    return Table(
        columns=(
            *Column.names("case", "plan"),
            *Column.numbers("baseline", "now", "change"),
            Column("verdict"),
        ),
        rows=tuple(_row(each) for each in judged),
    )


def _row(judged: Judged) -> tuple[str, ...]:
    found = deciding(judged)
    verdict = judged.verdict.upper() if judged.verdict in SHOUTED else judged.verdict
    name, plan = judged.case.name, judged.case.plan.text
    if found is None:
        return (name, plan, "", "", "", verdict)
    if found.metric != "peak":
        plan = f"{plan} ({found.metric})"
    before = "" if found.baseline is None else format_amount(found.metric, found.baseline)
    return (name, plan, before, format_amount(found.metric, found.now), change(found), verdict)


def grown_table(judged: Judged) -> Table | None:
    """The tensors and the operators of most growth, and why; None if none is known."""
    found = deciding(judged)
    if found is None or not judged.grown:
        return None
    tensors = [row for row in judged.grown if row.kind == "tensor"]
    operators = [row for row in judged.grown if row.kind == "operator"]
    fewer = operators[: max(SHOWN - len(tensors), SHOWN // 3)]
    shown = [*tensors[: SHOWN - len(fewer)], *fewer]
    rest = len(judged.grown) - len(shown)
    return Table(
        columns=(Column("grew", kind="name"), *Column.numbers("baseline", "now"), Column("why")),
        rows=tuple(
            (
                shorten(row.name if row.kind == "tensor" else f"all {row.name}", LONGEST),
                format_amount(found.metric, row.baseline) if row.baseline else "",
                format_amount(found.metric, row.now),
                shorten(row.why, LONGEST),
            )
            for row in shown
        ),
        footer=f"and {rest} more (--output json has all)" if rest else "",
    )


def case_table(cases: Iterable[tuple[Case, bool]]) -> Table:
    """The cases, their limits, and whether there is a baseline."""
    return Table(
        columns=(*Column.names("case", "model", "plan"), Column("limit"), Column("baseline")),
        rows=tuple(
            (
                case.name,
                case.model,
                case.plan.text,
                ", ".join(f"{m} {format_amount(m, most)}" for m, most in case.limit.items()),
                "yes" if recorded else "none",
            )
            for case, recorded in cases
        ),
    )
