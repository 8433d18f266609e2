"""Flags that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator, shown in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


# Completed by the shell; checked by whoever opens it.
PATH = click.Path(allow_dash=True, readable=False)

model_argument = click.argument("model", required=False, type=PATH)

size_options = together(
    click.option("--dim", "dims", multiple=True, metavar="NAME=SIZE",
                 help="Give a size to a symbol, wherever it occurs."),
    click.option("--shape", "shapes", multiple=True, metavar="INPUT=SIZES",
                 help="Give a shape to an input, as in x=32x3x224x224."),
    click.option("--batch", type=click.IntRange(min=1), metavar="N",
                 help="Give a size to the leading symbol of the first input."),
)  # fmt: skip


def _losses(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> Any:
    return list(given) or "auto"


grad_options = together(
    click.option("--loss", multiple=True, metavar="[WEIGHT*]NAME|KIND[:OUTPUT][@axis=N]",
                 callback=_losses,
                 help="The loss: a value, or ce, mse, l1, smooth-l1, huber, bce, bce-logits, nll, "
                      "kl, mean, sum, or pkg.mod:function; several are added; @axis=N is that of "
                      "the classes.  [default: auto]"),
    click.option("--labels", multiple=True, metavar="[OUTPUT=]NAME",
                 help="The name of the input that holds the labels.  [default: labels]"),
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
    click.option("--train-mode", is_flag=True,
                 help="Turn BatchNormalization and Dropout to training."),
    click.option("--ste", is_flag=True,
                 help="Let gradients straight through quantisation, as if it did not round."),
    click.option("--grad-buffers", is_flag=True,
                 help="Add each gradient to an input of its shape (micro-batches)."),
)  # fmt: skip

optimizer_option = click.option(
    "--optimizer", "update",
    type=click.Choice(["none", "sgd", "momentum", "adam", "adamw", "adagrad"]),
    default="none", show_default=True,
    help="Update the parameters in place of returning their gradients. The learning rate is an "
         "input, lr; what is else as in PyTorch: momentum 0.9, betas 0.9 and 0.999, eps 1e-8 "
         "(adagrad 1e-10), weight decay 0.01 (adamw).",
)  # fmt: skip

portable_option = click.option(
    "--portable", is_flag=True,
    help="Compute places of maxima by plain operators, for runtimes whose MaxPool has one output "
         "(onnxruntime's WebGPU build).",
)  # fmt: skip

format_option = click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True,
    help="For people or for machines.",
)  # fmt: skip

table_format_option = click.option(
    "--format", "form", type=click.Choice(["table", "json", "csv", "markdown"]), default="table",
    show_default=True, help="For people, for machines, for a spreadsheet, for a page.",
)  # fmt: skip


def memory_size(_ctx: click.Context, _param: click.Parameter, given: str | None) -> int | None:
    """`8GiB` as bytes."""
    if given is None:
        return None
    from gradtool.reports.units import parse_bytes

    return parse_bytes(given)


plan_table_options = together(
    click.option("--memory", metavar="SIZE", callback=memory_size,
                 help="Show the largest batch that fits in this memory, as in 8GiB."),
    click.option("--by", type=click.Choice(["plan", "op", "phase", "tensor", "module"]),
                 default="plan", show_default=True,
                 help="Show what is held at the peak of each plan."),
    click.option("--top", type=click.IntRange(min=1), default=12, show_default=True, metavar="N",
                 help="Show the N largest rows."),
)  # fmt: skip

write_options = together(
    click.option("-o", "--output", metavar="FILE", type=PATH,
                 help="Where to write; - is stdout."),
    click.option("--force", is_flag=True, help="Overwrite the output."),
    click.option("--external-data", type=click.Choice(["auto", "always", "never"]),
                 default="auto", show_default=True, help="Write weights to a file of their own."),
    click.option("--functions", is_flag=True, help="Write fused operators as local functions."),
    click.option("--barrier", is_flag=True,
                 help="Make other runtimes compute again what the plan does, whatever their "
                      "options."),
    portable_option,
)  # fmt: skip
