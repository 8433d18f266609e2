"""The command `gradtool doctor`."""

from __future__ import annotations

from gradtool.commands.call import Call, as_command
from gradtool.commands.options import format_option
from gradtool.errors import GradtoolError


@as_command("doctor")
@format_option
def command(call: Call, /, *, form: str) -> None:
    """Show versions, devices, processors and free memory, and what to install."""
    from gradtool.reports import system

    found = system.facts()
    if form == "json":
        call.reporter.json(system.DoctorDocument(facts=found))
    else:
        call.reporter.table(system.facts_table(found))
    missing = [fact.name for fact in found if fact.lacks]
    if missing:
        raise GradtoolError(f"missing: {', '.join(missing)}; pip install {' '.join(missing)}")
