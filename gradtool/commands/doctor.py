"""The command `gradtool doctor`."""

from __future__ import annotations

import click

from gradtool.commands.options import format_option
from gradtool.commands.output import print_json, print_table
from gradtool.errors import GradtoolError


@click.command("doctor")
@format_option
@click.pass_context
def command(ctx: click.Context, /, *, form: str) -> None:
    """Show versions, devices, processors and free memory, and what to install."""
    from gradtool.reports import system

    found = system.facts()
    if form == "json":
        print_json(system.facts_json(found))
    else:
        print_table(ctx, system.facts_table(found))
    missing = [fact.name for fact in found if fact.required and fact.value is None]
    if missing:
        raise GradtoolError(f"missing: {', '.join(missing)}; pip install {' '.join(missing)}")
