"""The command `gradtool ops`."""

from __future__ import annotations

from typing import Any

import click

from gradtool.commands.call import Call, as_command
from gradtool.commands.discovery import Sizes
from gradtool.commands.models import open_model
from gradtool.commands.options import model_argument, size_options, switch, table_format_option
from gradtool.commands.output import Reporter
from gradtool.errors import NotDifferentiable


@as_command("ops")
@model_argument
@switch("--missing", "Show only what has no rule or no kernel.")
@click.option("--template", metavar="OP", help="Print a gradient rule to start from.")
@size_options
@table_format_option
def command(
    call: Call,
    /,
    *,
    model: str | None,
    missing: bool,
    template: str | None,
    form: str,
    **sizes: Any,
) -> None:
    """List the operators that have a gradient rule and a kernel: all, or those of MODEL.

    With MODEL, the exit code is 3 if an operator that a gradient must pass has no rule.
    """
    from gradtool.reports import operators

    if template is not None:
        _print_template(call.reporter, template)
        return
    if model is None:
        entries = operators.unregistered() if missing else operators.registered()
        if form == "json":
            call.reporter.json(operators.RegisteredDocument(operators=entries))
        else:
            call.reporter.table(operators.registered_table(entries, full=form != "table"), form)
        return
    rows = operators.uses(open_model(call.reporter, model, Sizes.of(sizes)))
    shown = [row for row in rows if row.lacks] if missing else rows
    if form == "json":
        call.reporter.json(operators.UsesDocument(model=model, operators=shown))
    elif shown or form == "csv":
        call.reporter.table(operators.uses_table(shown), form)
    else:
        call.reporter.line("nothing is missing")
    without = [f"{row.operator} ({row.nodes})" for row in rows if row.gradient == "no"]
    if without:
        raise NotDifferentiable(f"no gradient rule for {', '.join(without)}")


TEMPLATE = '''\
from gradtool import gradient


@gradient("{op}")
def {function}(op, node, dy):
    """`y = f(x)`

        dx = dy · f'(x)

    One gradient for each formal input, `None` where there is none.  `op.Mul(a, b)` emits a node;
    `node.inputs` and `node.outputs` are values of the forward pass.
    """
    {inputs} = node.inputs
{bodies}
    return {gradients}
'''


def _print_template(reporter: Reporter, name: str) -> None:
    import re

    from gradtool.graph.families import split_name

    domain, op = split_name(name)
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|\W", "_", op).lower()
    inputs = _formal_inputs(domain, op)
    text = TEMPLATE.format(
        op=name,
        function=snake if snake.isidentifier() else "rule",
        inputs=", ".join(inputs) + ("," if len(inputs) == 1 else ""),
        bodies="\n".join(f"    d{name} = op.Mul(dy, {name})  # its derivative" for name in inputs),
        gradients=", ".join(f"d{name}" for name in inputs),
    )
    for line in text.splitlines():
        reporter.line(line)


def _formal_inputs(domain: str, op: str) -> list[str]:
    import onnx

    try:
        schema = onnx.defs.get_schema(op, domain=domain)
    except onnx.defs.SchemaError:
        return ["x"]
    return [entry.name.lower() for entry in schema.inputs] or ["x"]
