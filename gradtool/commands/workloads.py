"""From models on the command line to workloads that can be planned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import click

from gradtool.commands.discovery import Sizes, meant
from gradtool.commands.models import open_model, training_of, with_state
from gradtool.commands.output import say
from gradtool.errors import GradtoolError, UsageError

if TYPE_CHECKING:
    import onnx_ir as ir

    from gradtool.plans import Workload


@dataclass(frozen=True)
class Opened:
    """A model ready to be planned; `dims` are all sizes used, `assumed` those nobody gave.

    `training` is its training graph as it was loaded, with open sizes left open.
    """

    name: str
    training: ir.Model
    work: Workload
    dims: Mapping[str, int]
    assumed: Mapping[str, int]
    options: Mapping[str, Any]

    def grown(self) -> Callable[[int], Workload] | None:
        """A function from a batch to the workload of that batch; None if the file fixes it.

        The batch is the leading size of the first input, else a size that is called batch.
        """
        from gradtool import api, io
        from gradtool.plans import workload

        if self.name == "-":
            return None
        loaded = api.load(self.name)
        symbol = _batch_symbol(loaded)
        if symbol is None:
            return None
        rest = {n: size for n, size in self.dims.items() if n != symbol}
        known = io.symbols(loaded)
        loaded = api.load(self.name, dims={n: size for n, size in rest.items() if n in known})
        training = _training(loaded, dict(self.options))
        others = {n: rest.get(n, 1) for n in io.symbols(training) if n != symbol}
        return cache(lambda size: workload(training, {**others, symbol: size}))


def _batch_symbol(model: ir.Model) -> str | None:
    """The leading symbol of the first input, or the one called batch."""
    from gradtool import io

    names = io.symbols(model)
    first = next((v for v in model.graph.inputs if not v.is_initializer()), None)
    leading = getattr(first.shape[0], "value", None) if first is not None and first.shape else None
    if leading in names:
        return str(leading)
    return "batch" if "batch" in names else None


def _training(loaded: ir.Model, options: dict[str, Any]) -> ir.Model:
    """The training graph of a model that was opened once before: nothing is said again."""
    silent = click.Context(click.Command("silent"), obj={"quiet": True})
    return training_of(silent, loaded, options)


def open_workloads(
    ctx: click.Context,
    models: Sequence[str],
    *,
    sizes: Sizes,
    options: dict[str, Any],
) -> list[Opened]:
    """The models named, or the one that is meant when none is.

    Raises:
        UsageError: standard input is named twice, or no model is found.
    """
    if list(models).count("-") > 1:
        raise UsageError("standard input can be read once: give - once")
    asked = meant(ctx, models, sizes, options)
    return [_open(ctx, source, asked.sizes, asked.options) for source in asked.sources]


def _open(
    ctx: click.Context,
    source: str,
    sizes: Sizes,
    options: dict[str, Any],
) -> Opened:
    from gradtool import io
    from gradtool.commands.output import color
    from gradtool.plans import workload
    from gradtool.reports.progress import bar

    with bar(f"reading {source}", color=color(ctx)):
        loaded = open_model(ctx, source, *sizes)
        options = with_state(loaded, options)
        training = training_of(ctx, loaded, options)
    assumed = dict.fromkeys(io.symbols(training), 1)
    varied = _batch_symbol(loaded) if options.get("max_batch") else None
    told = [name for name in assumed if name != varied]
    if told:
        say(ctx, f"assumed {_listed(assumed, told)} (give --dim {told[0]}=N)")
    try:
        work = workload(training, assumed)
    except GradtoolError as error:
        if assumed:
            error.args = (f"{error} (with {_listed(assumed, assumed)} assumed: give --dim)",)
        raise
    given = dict(loaded.meta.get("gradtool.dims", {}))
    return Opened(source, training, work, {**given, **assumed}, assumed, options)


def _listed(sizes: Mapping[str, int], names: Iterable[str]) -> str:
    return ", ".join(f"{name}={sizes[name]}" for name in names)
