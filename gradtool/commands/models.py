"""From what the user typed to a model: loaded, differentiated if it must be."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gradtool.commands.discovery import UNSIZED, Sizes
from gradtool.errors import UsageError
from gradtool.graph.metadata import FORM
from gradtool.workloads.grad_options import GradOptions
from gradtool.workloads.options import options_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from gradtool.commands.output import Reporter
    from gradtool.workloads.training import TrainingGraph


def open_model(
    reporter: Reporter, source: str, sizes: Sizes = UNSIZED, opset: int | None = None
) -> ir.Model:
    """Load a model with the flags of `size_options`, at least at `opset`, perhaps with a head."""
    from gradtool.io import parse_dim, parse_set, parse_shape
    from gradtool.workloads.opening import load

    loaded = load(
        source,
        dims=_unique(map(parse_dim, sizes.dims), "--dim"),
        shapes=_unique(map(parse_shape, sizes.shapes), "--shape"),
        batch=sizes.batch,
        values=_unique(map(parse_set, sizes.values), "--set"),
        opset=opset,
        head=sizes.head,
        seed=sizes.seed,
        keep_cache=sizes.keep_cache,
    )
    if sizes.head is not None:
        reporter.say(loaded.meta["gradtool.headed"])
    for line in loaded.meta.get(FORM, ()):
        reporter.say(line)
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


def training_of(reporter: Reporter, loaded: ir.Model, options: GradOptions) -> ir.Model:
    """The training graph of a model: itself if it holds gradients and no loss is named."""
    if is_differentiated(loaded, options):
        if options.optimizer != "none":
            from gradtool.passes.second_order import require_loss

            require_loss(loaded, options.optimizer)
        return loaded
    made = differentiate(reporter, loaded, options)
    from gradtool.reports.training import parameters_said

    optimizer = f"   optimizer: {options.optimizer}" if made.updates else ""
    reporter.say(f"loss: {made.loss_said}   parameters: {parameters_said(made)}{optimizer}")
    return made.model


def refuse_gradient_flags(given: Collection[str], why: str) -> None:
    """Refuse the flags of a gradient where none is built.

    Raises:
        UsageError: naming the first of them.
    """
    for option in options_of(GradOptions).values():
        if option.name in given and option.name != "optimizer":
            raise UsageError(f"{option.flag} changes nothing: {why}")


def is_differentiated(loaded: ir.Model, options: GradOptions) -> bool:
    """Whether a model holds its gradients, and none of them is to be differentiated again."""
    from gradtool.passes.second_order import is_training_graph

    is_named = options.loss not in ("auto", ["auto"]) or options.head_grads
    return is_training_graph(loaded) and not is_named


def beside(loaded: ir.Model, options: GradOptions) -> tuple[GradOptions, str]:
    """The options for a model, and the optimizer whose state a budget counts beside its graph.

    The state of a forward model's updates is in its graph, and counts by itself; a model that holds
    its gradients but no updates is left as it is.

    Raises:
        UsageError: the model holds updates already.
    """
    from gradtool.graph.stages import require_no_updates

    if options.optimizer == "none" or not is_differentiated(loaded, options):
        return options, "none"
    require_no_updates(loaded)
    return options.without_updates(), options.optimizer


def differentiate(reporter: Reporter, model: ir.Model, options: GradOptions) -> TrainingGraph:
    """The training graph that options ask for; operators in its way are shown as a table."""
    from gradtool.ops.driver import Offenders
    from gradtool.workloads.training import training_graph

    try:
        made = training_graph(model, replace(options, own=True))
    except Offenders as error:
        from gradtool.reports.training import offenders_table

        reporter.explain(offenders_table(error.rows))
        raise
    if options.labels != "labels" and not made.labels:
        raise UsageError(f"--labels {_first(options.labels)}: the loss takes no labels")
    for warning in made.warnings:
        reporter.say(f"warning: {warning}")
    return made


def label_names(model: ir.Model, options: GradOptions) -> list[str]:
    """The names that the labels of a forward model have in its training graphs."""
    given = options.labels
    named = {"": given} if isinstance(given, str) else given
    base = named.get("", "labels")
    return [*named.values(), base, *(f"{base}_{v.name}" for v in model.graph.outputs)]


def _first(labels: str | Mapping[str, str]) -> str:
    """The first name as its flag has it."""
    if isinstance(labels, str):
        return labels
    output, name = next(iter(labels.items()))
    return f"{output}={name}" if output else name
