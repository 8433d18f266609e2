"""Flags that several commands share, and how they become models."""

from __future__ import annotations

import glob
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gradtool.errors import UsageError

if TYPE_CHECKING:
    import onnx_ir as ir

    from gradtool.passes.training import TrainingGraph

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
LAST = Path(".gradtool") / "last.json"


def _together(*options: Decorator) -> Decorator:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


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


def say(ctx: click.Context, message: str) -> None:
    """A remark on stderr, unless --quiet."""
    if not (ctx.obj or {}).get("quiet"):
        from gradtool.reports.text import escape

        click.echo(escape(message), err=True)


def open_model(
    ctx: click.Context,
    model: str | None,
    dims: Sequence[str] = (),
    shapes: Sequence[str] = (),
    batch: int | None = None,
) -> ir.Model:
    """Load the model that was named, or the one that is meant."""
    from gradtool import api
    from gradtool.io import parse_dim, parse_shape

    found = model if model is not None else discover(ctx)
    loaded = api.load(
        found,
        dims=_unique(map(parse_dim, dims), "--dim"),
        shapes=_unique(map(parse_shape, shapes), "--shape"),
        batch=batch,
    )
    raised = loaded.meta.get("gradtool.raised_from")
    if raised:
        version = loaded.graph.opset_imports.get("", 0)
        say(ctx, f"raised from opset {raised} to {version}: the gradient rules need it")
    return loaded


def _unique(pairs: Any, flag: str) -> dict[str, Any]:
    """The pairs as a dictionary. Raises UsageError if a name has two values."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if found.setdefault(name, value) != value:
            raise UsageError(f"{flag} {name}: given as {found[name]} and as {value}")
    return found


def differentiate(model: ir.Model, options: dict[str, Any]) -> TrainingGraph:
    """`api.grad` with the flags of `grad_options`."""
    from gradtool import api

    return api.grad(
        model,
        loss=options["loss"],
        labels=options["labels"],
        wrt=expand(options["wrt"]) if options["wrt"] else None,
        no_grad=expand(options["no_grad"]),
        input_grad=expand(options["input_grad"]),
        head_grads=options["head_grads"],
        accumulate=options["accumulate"],
    )


def expand(patterns: Sequence[str]) -> list[str]:
    """The patterns, with `@file` replaced by the lines of the file."""
    found: list[str] = []
    for pattern in patterns:
        if not pattern.startswith("@"):
            found.append(pattern)
            continue
        try:
            lines = Path(pattern[1:]).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{pattern}: cannot be read ({error})") from error
        found += [line for line in lines if line.strip()]
    return found


def discover(ctx: click.Context) -> str:
    """The model meant when none is named: the last one differentiated here, or the only one.

    Raises:
        UsageError: there is no model here, or several.
    """
    import os

    last = None if os.environ.get("CI") else _last()
    if last is not None:
        say(ctx, f"model: {last} (the last 'gradtool grad' here)")
        return last
    found = [f for f in sorted(glob.glob("*.onnx")) if not f.endswith(".grad.onnx")]  # noqa: PTH207
    if len(found) == 1:
        say(ctx, f"model: {found[0]} (the only one here)")
        return found[0]
    if not found:
        raise UsageError("no MODEL given, and there is no .onnx file in this folder")
    raise UsageError(f"no MODEL given; here are {', '.join(found)}")


def remember(path: str) -> None:
    """Note the model of a `grad`, with its hash, for later commands in this folder."""
    if path == "-":
        return
    try:
        LAST.parent.mkdir(exist_ok=True)
        note = {"model": path, "sha256": _digest(Path(path))}
        LAST.write_text(json.dumps(note) + "\n", encoding="utf-8")
    except OSError:
        return  # a folder that cannot be written to has no memory


def _last() -> str | None:
    try:
        note = json.loads(LAST.read_text(encoding="utf-8"))
        path = str(note["model"])
        return path if _digest(Path(path)) == note["sha256"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _digest(path: Path) -> str:
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
