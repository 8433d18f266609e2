"""Flags that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _together(*options: Decorator) -> Decorator:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


# Completed by the shell; checked by whoever opens it.
PATH = click.Path(allow_dash=True, readable=False)

model_argument = click.argument("model", required=False, type=PATH)

size_options = _together(
    click.option("--dim", "dims", multiple=True, metavar="NAME=SIZE",
                 help="Give a size to a symbol, wherever it occurs."),
    click.option("--shape", "shapes", multiple=True, metavar="INPUT=SIZES",
                 help="Give a shape to an input, as in x=32x3x224x224."),
    click.option("--batch", type=click.IntRange(min=1), metavar="N",
                 help="Give a size to the leading symbol of the first input."),
)  # fmt: skip

grad_options = _together(
    click.option("--loss", default="auto", show_default=True, metavar="NAME|KIND[:OUTPUT]",
                 help="The loss: auto, a value, or ce, mse, l1, bce-logits, nll, mean, sum."),
    click.option("--labels", default="labels", show_default=True, metavar="NAME",
                 help="The name of the input that holds the labels."),
    click.option("--wrt", multiple=True, metavar="GLOB|@FILE",
                 help="Differentiate by these values; default: every parameter."),
    click.option("--no-grad", multiple=True, metavar="GLOB|@FILE",
                 help="Let no gradient flow into these values."),
    click.option("--input-grad", multiple=True, metavar="GLOB|@FILE",
                 help="Differentiate by these float inputs as well."),
    click.option("--head-grads", is_flag=True,
                 help="No loss: an input per output carries its gradient."),
    click.option("--accumulate", type=click.Choice(["chain", "sum"]), default="chain",
                 show_default=True, help="Add gradients as they appear, or all at once."),
)  # fmt: skip

format_option = click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True,
    help="For people or for machines.",
)  # fmt: skip

table_format_option = click.option(
    "--format", "form", type=click.Choice(["table", "json", "csv", "markdown"]), default="table",
    show_default=True, help="For people, for machines, for a spreadsheet, for a page.",
)  # fmt: skip
