"""From what the user typed to a model: loaded, differentiated if it must be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gradtool.commands.output import say, say_table
from gradtool.errors import UsageError

if TYPE_CHECKING:
    import onnx_ir as ir

    from gradtool.passes.training import TrainingGraph


def open_model(
    ctx: click.Context,
    source: str,
    dims: Sequence[str] = (),
    shapes: Sequence[str] = (),
    batch: int | None = None,
    opset: int | None = None,
) -> ir.Model:
    """Load a model with the flags of `size_options`, at least at `opset`."""
    from gradtool import api
    from gradtool.io import parse_dim, parse_shape

    loaded = api.load(
        source,
        dims=_unique(map(parse_dim, dims), "--dim"),
        shapes=_unique(map(parse_shape, shapes), "--shape"),
        batch=batch,
        opset=opset,
    )
    for line in loaded.meta.get("gradtool.left_aside", ()):
        say(ctx, f"left aside: {line}")
    raised = loaded.meta.get("gradtool.raised_from")
    if raised:
        version = loaded.graph.opset_imports.get("", 0)
        why = "the gradient rules need it" if opset is None else "asked for"
        say(ctx, f"raised from opset {raised} to {version}: {why}")
    return loaded


def _unique(pairs: Iterable[tuple[str, Any]], flag: str) -> dict[str, Any]:
    """The pairs as a dictionary. Raises UsageError if a name has two values."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if found.setdefault(name, value) != value:
            raise UsageError(f"{flag} {name}: given as {found[name]} and as {value}")
    return found


def training_of(ctx: click.Context, loaded: ir.Model, options: dict[str, Any]) -> ir.Model:
    """The training graph of a model: itself if it holds gradients and no loss is named."""
    if _is_differentiated(loaded, options):
        if options.get("update", "none") != "none":
            from gradtool.passes.second_order import require_loss

            require_loss(loaded, options["update"])
        return loaded
    made = differentiate(ctx, loaded, options)
    from gradtool.reports.training import parameters_said

    optimizer = f"   optimizer: {options['update']}" if made.updates else ""
    say(ctx, f"loss: {made.loss_said}   parameters: {parameters_said(made)}{optimizer}")
    return made.model


def _is_differentiated(loaded: ir.Model, options: Mapping[str, Any]) -> bool:
    """Whether a model holds its gradients, and none of them is to be differentiated again."""
    from gradtool import api

    named = options["loss"] not in ("auto", ["auto"]) or options["head_grads"]
    return api.is_training_graph(loaded) and not named


def with_state(loaded: ir.Model, options: dict[str, Any]) -> dict[str, Any]:
    """The options for a model, where `optimizer` may name one whose state is part of a budget.

    A forward model gets its updates (the option `update`), whose state is in the graph and counts
    by itself; of a model that holds its gradients but no updates, the state is counted beside it.

    Raises:
        UsageError: the model holds updates already.
    """
    from gradtool.passes.stages import require_no_updates

    given = options.get("optimizer", "none")
    if given == "none":
        return options
    if _is_differentiated(loaded, options):
        require_no_updates(loaded)
        return options
    return options | {"optimizer": "none", "update": given}


def differentiate(ctx: click.Context, model: ir.Model, options: dict[str, Any]) -> TrainingGraph:
    """`api.grad` with the flags of `grad_options`; operators in its way are shown as a table."""
    from gradtool import api
    from gradtool.passes.backward import Offenders

    try:
        made = api.grad(
            model,
            loss=options["loss"],
            labels=_labels(options["labels"]),
            wrt=expand(options["wrt"]) if options["wrt"] else None,
            no_grad=expand(options["no_grad"]),
            input_grad=expand(options["input_grad"]),
            head_grads=options["head_grads"],
            accumulate=options["accumulate"],
            train_mode=options["train_mode"],
            ste=options["ste"],
            grad_buffers=options["grad_buffers"],
            loss_seed=options.get("loss_seed", False),
            optimizer=options.get("update", "none"),
            own=True,
        )
    except Offenders as error:
        from gradtool.reports.training import offenders_table

        say_table(ctx, offenders_table(error.rows))
        raise
    for warning in made.warnings:
        say(ctx, f"warning: {warning}")
    return made


def label_names(model: ir.Model, options: Mapping[str, Any]) -> list[str]:
    """The names that the labels of a forward model have in its training graphs."""
    given = _labels(options["labels"])
    base = given.get("", "labels")
    return [*given.values(), base, *(f"{base}_{v.name}" for v in model.graph.outputs)]


def _labels(given: Sequence[str]) -> dict[str, str]:
    """By output the name of its labels; the empty output stands for the others."""
    names: dict[str, str] = {}
    for text in given:
        output, _, name = text.rpartition("=")
        if not name or names.setdefault(output, name) != name:
            raise UsageError(f"--labels {text}: write NAME once, or OUTPUT=NAME once per output")
    return names


def expand(patterns: Sequence[str]) -> list[str]:
    """The patterns, with `@file` replaced by the lines of the file."""
    found: list[str] = []
    for pattern in patterns:
        if not pattern.startswith("@"):
            found.append(pattern)
            continue
        try:
            lines = Path(pattern[1:]).read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"{pattern}: cannot be read: {reason}") from error
        found += [line for line in lines if line.strip()]
    return found
