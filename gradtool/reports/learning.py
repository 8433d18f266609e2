"""The results of trainings: their journals as curves, a table and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from gradtool.text.layout import Column
from gradtool.text.table import Table

LAST = 20  # steps of which the last loss is the mean
LINEAR = frozenset({"learning rate"})  # curves that go to nothing

Point = tuple[int, float | None]  # a step, from 1, and a number; None where it was not finite


class RunRecord(TypedDict):
    """A training."""

    run: Annotated[str, "The folder that gradtool train wrote."]
    steps: int
    epochs: int
    skipped: Annotated[
        int, "Steps that updated nothing, because a gradient was infinite at a loss scale."
    ]
    last_loss: Annotated[float | None, f"The mean of the last {LAST} steps."]
    curves: Annotated[
        dict[str, list[Point]],
        "By name, pairs of a step, from 1, and a number, null where it was not finite.",
    ]
    tables: Annotated[
        dict[str, list[list[int]]],
        "Of the best evaluation, by metric counts by label, a row each, and by prediction.",
    ]


class RunsDocument(TypedDict):
    """Trainings by their journals."""

    runs: list[RunRecord]
    written: Annotated[dict[str, int], "Bytes of the files that were written, by path."]


@dataclass
class Run:
    """A training: `losses` and `rates` by step, `metrics` by name of those that were evaluated.

    `tables` are confusion matrices of the best evaluation, which was `at` a step, of `classes` by
    the input that takes them.
    """

    name: str
    losses: list[Point] = field(default_factory=list)
    rates: list[Point] = field(default_factory=list)
    scales: list[Point] = field(default_factory=list)
    metrics: dict[str, list[Point]] = field(default_factory=dict)
    epochs: int = 0
    skipped: int = 0
    at: int = 0
    tables: dict[str, Any] = field(default_factory=dict)
    classes: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, entries: Iterable[Mapping[str, Any]]) -> Run:
        """The run of a journal's entries, in their order; absent facts are left out."""
        run = cls(name)
        for entry in entries:
            run._add(entry)
        return run

    @property
    def steps(self) -> int:
        """The steps taken."""
        return self.losses[-1][0] if self.losses else 0

    @property
    def last(self) -> float | None:
        """The mean loss of the last steps."""
        found = [loss for _, loss in self.losses[-LAST:] if loss is not None]
        return sum(loss / len(found) for loss in found) if found else None

    def curves(self) -> dict[str, list[Point]]:
        """The curves to draw, by name: the loss, the rate, the scale, then each metric."""
        own = {"loss": self.losses, "learning rate": self.rates, "loss scale": self.scales}
        shown = {name: points for name, points in own.items() if points}
        return shown | {f"evaluated {name}": points for name, points in self.metrics.items()}

    def _add(self, entry: Mapping[str, Any]) -> None:
        step, found = _whole(entry.get("step")), entry.get("eval")
        if step is None:
            return
        if isinstance(found, Mapping):
            for name, value in found.items():
                self.metrics.setdefault(str(name), []).append((step, _number(value)))
            return
        for key, points in (("loss", self.losses), ("lr", self.rates), ("loss_scale", self.scales)):
            if key in entry:
                points.append((step, _number(entry[key])))
        self.epochs = max(self.epochs, 1 + (_whole(entry.get("epoch")) or 0))
        self.skipped += entry.get("skipped") is True


def runs_table(runs: Sequence[Run]) -> Table:
    """A row a training: how long it was, its last loss, and the last of each metric."""
    metrics = list(dict.fromkeys(name for run in runs for name in run.metrics))
    return Table(
        columns=(
            Column("run", kind="name"), *Column.numbers("steps", "epochs", "last loss"),
            *Column.numbers(*(f"evaluated {name}" for name in metrics)),
        ),
        rows=tuple(
            (
                run.name, f"{run.steps:,}", str(run.epochs), number(run.last),
                *(number(run.metrics[name][-1][1]) if name in run.metrics else "-"
                  for name in metrics),
            )
            for run in runs
        ),
        footer="\n".join(_remarks(runs)),
    )  # fmt: skip


def points_table(runs: Sequence[Run]) -> Table:
    """A row a point, for machines."""
    return Table(
        columns=(Column("run"), Column("curve"), Column("step", "right"), Column("value", "right")),
        rows=tuple(
            (run.name, name, str(step), "" if value is None else repr(value))
            for run in runs
            for name, points in run.curves().items()
            for step, value in points
        ),
    )


def runs_json(runs: Sequence[Run], written: Mapping[str, int]) -> RunsDocument:
    """All there is, for machines; `written` are bytes by path."""
    return {"runs": [_run_json(run) for run in runs], "written": dict(written)}


def _run_json(run: Run) -> RunRecord:
    return {
        "run": run.name,
        "steps": run.steps,
        "epochs": run.epochs,
        "skipped": run.skipped,
        "last_loss": run.last,
        "curves": run.curves(),
        "tables": {name: table.tolist() for name, table in run.tables.items()},
    }


def number(value: float | None) -> str:
    """A number of a curve for people."""
    return "-" if value is None else f"{value:.4g}"


def _remarks(runs: Sequence[Run]) -> list[str]:
    said = [f"the last loss is the mean of the last {LAST} steps"]
    said += [
        f"{r.name}: {r.skipped} steps were skipped by the loss scale" for r in runs if r.skipped
    ]
    return said


def _whole(found: Any) -> int | None:
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _number(found: Any) -> float | None:
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return float(found) if is_number else None
