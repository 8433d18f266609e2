"""From what the user typed to a model: loaded, differentiated if it must be."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradtool.commands.discovery import UNSIZED, Sizes
from gradtool.errors import UsageError
from gradtool.graph.metadata import GRADIENTS
from gradtool.workloads.options import GradOptions, options_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from gradtool.commands.output import Reporter
    from gradtool.passes.train_mode import TrainMode
    from gradtool.workloads.training import TrainingGraph


def open_model(
    reporter: Reporter,
    source: str,
    sizes: Sizes = UNSIZED,
    opset: int | None = None,
) -> ir.Model:
    """Load a model with the flags of `size_options`, at least at `opset`."""
    from gradtool.io import parse_dim, parse_set, parse_shape
    from gradtool.workloads.opening import load

    loaded = load(
        source,
        dims=_unique(map(parse_dim, sizes.dims), "--dim"),
        shapes=_unique(map(parse_shape, sizes.shapes), "--shape"),
        batch=sizes.batch,
        values=_unique(map(parse_set, sizes.values), "--set"),
        opset=opset,
    )
    for line in loaded.meta.get("gradtool.left_aside", ()):
        reporter.say(f"left aside: {line}")
    if reporter.verbose:
        for line in loaded.meta.get("gradtool.hints", ()):
            reporter.say(f"a hint, inference decides: {line}")
    raised = loaded.meta.get("gradtool.raised_from")
    if raised:
        version = loaded.graph.opset_imports.get("", 0)
        why = "the gradient rules need it" if opset is None else "asked for"
        reporter.say(f"raised from opset {raised} to {version}: {why}")
    return loaded


def _unique(pairs: Iterable[tuple[str, Any]], flag: str) -> dict[str, Any]:
    """The pairs as a dictionary. Raises UsageError if a name has two values."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if found.setdefault(name, value) != value:
            raise UsageError(f"{flag} {name}: given as {found[name]} and as {value}")
    return found


def training_of(reporter: Reporter, loaded: ir.Model, options: dict[str, Any]) -> ir.Model:
    """The training graph of a model: itself if it holds gradients and no loss is named."""
    if is_differentiated(loaded, options):
        if options.get("update", "none") != "none":
            from gradtool.passes.second_order import require_loss

            require_loss(loaded, options["update"])
        return loaded
    made = differentiate(reporter, loaded, options)
    from gradtool.reports.training import parameters_said

    optimizer = f"   optimizer: {options['update']}" if made.updates else ""
    reporter.say(f"loss: {made.loss_said}   parameters: {parameters_said(made)}{optimizer}")
    return made.model


def refuse_gradient_flags(given: Collection[str], why: str) -> None:
    """Refuse the flags of a gradient where none is built.

    Raises:
        UsageError: naming the first of them.
    """
    for option in options_of(GradOptions).values():
        if option.name in given:
            raise UsageError(f"{option.flag} changes nothing: {why}")


def has_gradients(model: ir.Model) -> bool:
    """Whether a graph returns gradients."""
    return bool(json.loads(model.metadata_props.get(GRADIENTS, "{}")))


def is_differentiated(loaded: ir.Model, options: Mapping[str, Any]) -> bool:
    """Whether a model holds its gradients, and none of them is to be differentiated again."""
    from gradtool.passes.second_order import is_training_graph

    named = tuple(options["loss"]) not in ((), ("auto",)) or options["head_grads"]
    return is_training_graph(loaded) and not named


def with_state(loaded: ir.Model, options: dict[str, Any]) -> dict[str, Any]:
    """The options for a model, where `optimizer` may name one whose state is part of a budget.

    A forward model gets its updates (the option `update`), whose state is in the graph and counts
    by itself; of a model that holds its gradients but no updates, the state is counted beside it.

    Raises:
        UsageError: the model holds updates already.
    """
    from gradtool.graph.stages import require_no_updates

    given = options.get("optimizer", "none")
    if given == "none":
        return options
    if is_differentiated(loaded, options):
        require_no_updates(loaded)
        return options
    return options | {"optimizer": "none", "update": given}


def differentiate(reporter: Reporter, model: ir.Model, options: dict[str, Any]) -> TrainingGraph:
    """The training graph that flags ask for; operators in its way are shown as a table."""
    from gradtool.gradients.driver import Offenders
    from gradtool.workloads.training import training_graph

    try:
        made = training_graph(
            model,
            loss=list(options["loss"]) or "auto",
            labels=_labels(options["labels"]),
            wrt=expand(options["wrt"]) if options["wrt"] else None,
            no_grad=expand(options["no_grad"]),
            input_grad=expand(options["input_grad"]),
            head_grads=options["head_grads"],
            accumulate=options["accumulate"],
            train_mode=_globs(options["train_mode"]),
            ste=options["ste"],
            grad_buffers=options["grad_buffers"],
            lora=options["lora"],
            lora_target=expand(options["lora_target"]),
            lora_alpha=options["lora_alpha"],
            lora_seed=options.get("lora_seed", 0),
            fuse_attention=options["fuse_attention"],
            only_loss=options["only_loss"],
            loss_seed=options.get("loss_seed", False),
            on_loss=options.get("on_loss"),
            optimizer=options.get("update", "none"),
            optimizer_option=options["optimizer_option"],
            clip_norm=options["clip_norm"],
            clip_value=options["clip_value"],
            no_decay=expand(options["no_decay"]),
            lr_scale=options["lr_scale"],
            sparse=options["sparse"],
            own=True,
        )
    except Offenders as error:
        from gradtool.reports.training import offenders_table

        reporter.explain(offenders_table(error.rows))
        raise
    if options["labels"] and not made.labels:
        raise UsageError(f"--labels {options['labels'][0]}: the loss takes no labels")
    for warning in made.warnings:
        reporter.say(f"warning: {warning}")
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


def _globs(given: TrainMode) -> TrainMode:
    """A flag, or the globs that it carries."""
    return given if isinstance(given, (bool, str)) else expand(given)


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
