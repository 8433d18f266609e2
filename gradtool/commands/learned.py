"""The curves of trainings: `gradtool report RUN`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradtool.errors import UsageError

if TYPE_CHECKING:
    from gradtool.commands.call import Call
    from gradtool.commands.output import Reporter
    from gradtool.reports.learning import Run

TAKEN = frozenset({"models", "html", "force", "form"})  # parameters of report that are of a run too
WIDTH, TALL, LOW = 78, 10, 6  # cells of a plot, and rows of the loss and of what is beside it


def is_run(path: str) -> bool:
    """Whether a path is the folder of a training, and not that of a model."""
    from gradtool.io import genai

    return path != "-" and Path(path).is_dir() and not genai.is_folder(Path(path))


def report(call: Call, paths: Sequence[str], options: Mapping[str, Any], form: str) -> None:
    """Print the curves of trainings, and write the page asked for.

    Raises:
        UsageError: a folder has no journal, an option or another path is of models.
    """
    from gradtool.commands import drawing
    from gradtool.reports import learning

    _refuse(call, paths)
    drawing.asked({**dict.fromkeys(drawing.FILES), **{k: options[k] for k in ("html", "force")}})
    runs = [_read(path) for path in paths]
    written: dict[str, int] = {}
    if options["html"] is not None:
        from gradtool.reports.learning_page import learning_page

        written = drawing.save({options["html"]: learning_page(runs)}, force=options["force"])
    if form == "json":
        call.reporter.json(learning.runs_json(runs, written))
        return
    if form == "csv":
        call.reporter.table(learning.points_table(runs), form)
        return
    call.reporter.table(learning.runs_table(runs), form)
    if form == "table":
        for run in runs:
            _draw(call.reporter, run, titled=len(runs) > 1)
    for path, size in written.items():
        from gradtool.text.units import format_bytes

        call.reporter.remark(f"wrote {path} ({format_bytes(size)})", form)


def _refuse(call: Call, paths: Sequence[str]) -> None:
    for path in paths:
        if not is_run(path):
            run = next(p for p in paths if is_run(p))
            raise UsageError(f"{path} is no folder, but {run} is: report trainings or models")
    for name in sorted(call.given - TAKEN):
        flag = f"--{name.replace('_', '-')}"
        raise UsageError(f"{flag} is of models, and {paths[0]} is a folder: leave it out")


def _read(path: str) -> Run:
    import numpy as np

    from gradtool.reports.learning import Run
    from gradtool.training import checkpoints, journal, runs

    file = Path(path) / journal.NAME
    if not file.is_file():
        raise UsageError(
            f"{path}: no training is there, and no model: it has neither {journal.NAME} "
            "nor genai_config.json"
        )
    made = Run.of(path, journal.read(file))
    found = checkpoints.best_tables(Path(path))
    if found is not None:
        made.classes = runs.classes_of(Path(path))
        made.at, made.tables = found[0], {n: np.array(table) for n, table in found[1].items()}
    return made


def _draw(reporter: Reporter, run: Run, *, titled: bool) -> None:
    from gradtool.reports.learning import LINEAR
    from gradtool.reports.predictions import small_tables
    from gradtool.text.plot import plot

    for name, points in run.curves().items():
        if name != "loss" and len({value for _, value in points}) < 2:
            continue
        title = f"{run.name}: {name}" if titled else name
        height = TALL if name == "loss" else LOW
        reporter.line("")
        linear, unicode = name in LINEAR, reporter.draws()
        for line in plot(title, points, WIDTH, height, linear=linear, unicode=unicode):
            reporter.line(f" {line}")
    for table in small_tables(run.at, run.tables, run.classes):
        if isinstance(table, str):
            reporter.line(f"{run.name}: {table}" if titled else table)
        else:
            title = f"{run.name}: {table.title}" if titled else table.title
            reporter.tables([replace(table, title=title)])
