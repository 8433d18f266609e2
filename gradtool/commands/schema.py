"""The command `gradtool schema`."""

from __future__ import annotations

from pathlib import Path

import click

from gradtool.commands.call import Call, Choice, as_command

FOLDER = Path(__file__).parents[1] / "schemas"
SCHEMAS = {
    "baseline": "a file that check --update writes",
    "cases": "check --list --format json",
    "check": "check --format json",
    "compare": "compare --format json",
    "doctor": "doctor --format json",
    "explain": "mirror --explain TENSOR --format json",
    "frontier": "recompute --frontier --format json",
    "grad": "grad --format json",
    "kernels": "run --explain-kernels --format json",
    "kit": "manifest.json of a kit, and kit --format json",
    "max-batch": "recompute --max-batch --format json",
    "ops": "ops --format json",
    "plan": "a file that recompute -o FILE.json writes",
    "plans": "mirror and recompute --format json; report too with --html, --svg or --trace",
    "profile": "a file that run --profile writes",
    "ranks": "report --ranks N --format json",
    "report": "report --format json",
    "run": "run --format json",
    "runs": "report RUN --format json",
    "stages": "report --ranks N --stages S --format json",
    "train": "train --format json",
}


@as_command("schema")
@click.argument("name", metavar="[NAME]", type=Choice(list(SCHEMAS)), required=False)
def command(call: Call, /, *, name: str | None) -> None:
    """Print the JSON Schema of what a command writes; without NAME, list them."""
    if name is not None:
        click.echo((FOLDER / f"{name}.json").read_text(encoding="utf-8"), nl=False)
        return
    from gradtool.text.layout import Column
    from gradtool.text.table import Table

    columns = (Column("schema", kind="name"), Column("of"))
    call.reporter.table(Table(columns=columns, rows=tuple(SCHEMAS.items())))
