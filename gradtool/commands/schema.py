"""The command `gradtool schema`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import click

from gradtool.commands.call import Call, Choice, as_command

if TYPE_CHECKING:
    from gradtool.text.json_schema import Schema

# By name the command that writes a document, and the record of each form that it has.
SCHEMAS = {
    "baseline": ("a file that check --update writes", "check.baselines:BaselineDocument"),
    "cases": ("check --list --format json", "reports.gate.gate_json:CasesDocument"),
    "check": ("check --format json", "reports.gate.gate_json:CheckDocument"),
    "compare": ("compare --format json", "reports.comparison:CompareDocument"),
    "doctor": ("doctor --format json", "reports.system:DoctorDocument"),
    "explain": ("mirror --explain TENSOR --format json", "planning.recompute.value_facts:Facts"),
    "frontier": ("recompute --frontier --format json", "reports.frontier:FrontierDocument"),
    "grad": ("grad --format json", "reports.training:GradDocument"),
    "kernels": ("run --explain-kernels --format json", "reports.kernels:KernelsDocument"),
    "kit": ("manifest.json of a kit, and kit --format json", "kit.manifest:KitDocument"),
    "max-batch": ("recompute --max-batch --format json", "reports.frontier:BatchesDocument"),
    "ops": ("ops --format json", "reports.operators:RegisteredDocument UsesDocument"),
    "plan": ("a file that recompute -o FILE.json writes", "workloads.plan_files:PlanDocument"),
    "plans": (
        "mirror and recompute --format json; report too with --html, --svg or --trace",
        "reports.plans:PlansDocument ModelsDocument",
    ),
    "predict": ("predict --format json", "reports.predictions:PredictDocument"),
    "profile": ("a file that run --profile writes", "program.profile:ProfileDocument"),
    "ranks": ("report --ranks N --format json", "reports.ranks:RanksDocument"),
    "rates": ("train --find-lr --format json", "training.rate_report:RatesDocument"),
    "report": ("report --format json", "reports.memory:ReportDocument"),
    "run": ("run --format json", "reports.running:RunDocument"),
    "runs": ("report RUN --format json", "reports.learning:RunsDocument"),
    "stages": ("report --ranks N --stages S --format json", "reports.stages:StagesDocument"),
    "train": ("train --format json", "training.train_log:TrainDocument"),
}


def schema_named(name: str) -> Schema:
    """The schema of a document, made of its records."""
    from gradtool.text.json_schema import document_schema

    said, where = SCHEMAS[name]
    path, records = where.split(":")
    module = import_module(f"gradtool.{path}")
    forms = [getattr(module, record) for record in records.split()]
    return document_schema(forms, f"gradtool: {said}", getattr(module, "SCHEMA_VERSION", 1))


@as_command("schema")
@click.argument("name", metavar="[NAME]", type=Choice(list(SCHEMAS)), required=False)
def command(call: Call, /, *, name: str | None) -> None:
    """Print the JSON Schema of what a command writes; without NAME, list them."""
    if name is not None:
        from gradtool.text.names import json_text

        click.echo(json_text(schema_named(name)))
        return
    from gradtool.text.layout import Column
    from gradtool.text.table import Table

    columns = (Column("schema", kind="name"), Column("of"))
    rows = tuple((name, said) for name, (said, _) in SCHEMAS.items())
    call.reporter.table(Table(columns=columns, rows=rows))
