"""The command `gradtool schema`."""

from __future__ import annotations

from pathlib import Path

import click

FOLDER = Path(__file__).parents[1] / "schemas"
NAMES = ("report", "plans", "run", "check", "compare", "plan", "baseline")


@click.command("schema")
@click.argument("name", type=click.Choice(NAMES))
def command(name: str) -> None:
    """Print the JSON Schema of what a command writes.

    report, run, check and compare: of these commands with JSON; plans: of mirror and recompute;
    plan: of a plan in a file; baseline: of a file that check --update writes.
    """
    click.echo((FOLDER / f"{name}.json").read_text(encoding="utf-8"), nl=False)
