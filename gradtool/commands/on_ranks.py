"""`report --ranks`: what each rank of a training takes, on paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gradtool.commands.discovery import Sizes, meant
from gradtool.commands.options import PATH
from gradtool.errors import UsageError
from gradtool.workloads.options import kernels_of

if TYPE_CHECKING:
    from gradtool.commands.call import Call
    from gradtool.kernels.native import Kernels
    from gradtool.program import Step

F = TypeVar("F", bound=Callable[..., Any])
LINK, LATENCY = "1.25GB/s", "20us"
OPTIMIZER = "adamw"
TRAINS_ON: Kernels = "exact"  # where there is a library and nobody says something else


def options(function: F) -> F:
    """`--ranks`, and what it is of."""
    for option in reversed((
        click.option("--ranks", type=click.IntRange(min=2), metavar="N",
                     help="Show what each of N ranks of gradtool train takes, on paper: its "
                          "memory, and the time of a step.  --batch is that of all together."),
        click.option("--shard", type=click.Choice(["none", "optimizer", "gradients"]),
                     help="With --ranks: what they have parts of.  [default: all in a table]"),
        click.option("--shard-tables", multiple=True, metavar="GLOB",
                     help="With --ranks and --sparse: they have blocks of the rows of tables that "
                          "match."),
        click.option("--staleness", type=click.IntRange(min=0), metavar="K",
                     help="With --shard-tables: rows of other ranks may be K steps old.  "
                          "[default: 0]"),
        click.option("--sync-batchnorm", is_flag=True,
                     help="With --ranks: BatchNormalization takes the statistics of the examples "
                          "of all ranks."),
        click.option("--micro-batches", type=click.IntRange(min=1), metavar="N",
                     help="With --ranks: each takes its share of a step in N parts.  [default: 1]"),
        click.option("--link", metavar="RATE",
                     help="With --ranks: what one sends while it receives as much, as 25GB/s or "
                          f"100Gbit/s.  [default: {LINK}]"),
        click.option("--latency", metavar="TIME",
                     help="With --ranks: what a message takes beside its bytes, as 5us.  "
                          f"[default: {LATENCY}]"),
        click.option("--cost", metavar="FILE.json", type=PATH,
                     help="With --ranks: the time of each node, of gradtool run --profile.  "
                          "[default: of a nominal machine]"),
    )):  # fmt: skip
        function = option(function)
    return function


def report(
    call: Call, models: Sequence[str], sizes: Sizes, options: dict[str, Any], form: str
) -> None:
    """Print the memory of a rank and the time of a step, for each way to shard.

    Raises:
        UsageError: several models, one that holds its gradients, or ranks that do not divide the
            batch.
    """
    from gradtool import io
    from gradtool.commands.models import open_model
    from gradtool.commands.train import recipe_of
    from gradtool.costs.links import Link, parse_rate, parse_time
    from gradtool.passes.synchronized import synchronized
    from gradtool.reports.ranks import ranks_json, ranks_table
    from gradtool.training.graphs import graphs_of, require_forward
    from gradtool.training.layouts import OnPaper, layout
    from gradtool.training.options import TrainOptions

    ranks, parts = options["ranks"], options["micro_batches"] or 1
    link = Link(parse_rate(options["link"] or LINK), parse_time(options["latency"] or LATENCY))
    priced = _prices(options["cost"])
    kernels = kernels_of(options) if "kernels" in call.given else TRAINS_ON
    asked = meant(call, models, sizes, options)
    if len(asked.sources) > 1:
        raise UsageError("--ranks shows one model: name one")
    dims, shapes, batch = asked.sizes
    loaded = open_model(call.reporter, asked.source, dims, shapes, _share(batch, ranks, parts))
    require_forward(loaded)
    optimizer = OPTIMIZER if options["update"] == "none" else options["update"]
    recipe = recipe_of(call.reporter, loaded, {**asked.options, "optimizer": optimizer})
    with call.reporter.bar(f"laying {asked.source} out on {ranks} ranks"):
        graphs = graphs_of(recipe, TrainOptions(optimizer=optimizer), in_two=True)
        if options["sync_batchnorm"]:
            graphs = graphs.planned(synchronized(graphs.model, ranks))
        known = dict.fromkeys(io.symbols(graphs.model), 1)
        shards = [options["shard"]] if options["shard"] else ["none", "optimizer", "gradients"]
        found = [
            layout(
                graphs, recipe.updates, known, OnPaper(0, ranks), link, shard=shard,
                micro_batches=parts, kernels=kernels,
                seconds=priced.seconds,
                tables=options["shard_tables"], staleness=options["staleness"] or 0,
            )
            for shard in shards
        ]  # fmt: skip
    if known:
        call.reporter.say(f"assumed {', '.join(f'{n} = 1' for n in known)} (give --dim NAME=N)")
    if form == "json":
        how = {
            "optimizer": optimizer, "kernels": kernels,
            "micro_batches": parts, "link_bytes_per_second": link.rate,
            "latency_seconds": link.latency, "cost": priced.name,
        }  # fmt: skip
        call.reporter.json(ranks_json(found, asked.source, ranks, known, how))
        return
    title = f"{asked.source} on {ranks} ranks, {optimizer}"
    told = f"link {options['link'] or LINK}, latency {options['latency'] or LATENCY}"
    call.reporter.table(ranks_table(found, title, f"{told}; time of nodes: {priced.name}"), form)


@dataclass(frozen=True)
class _Prices:
    """The seconds of steps, and what they are of."""

    name: str
    seconds: Callable[[Step], float]


def _prices(path: str | None) -> _Prices:
    from gradtool.costs import profile
    from gradtool.training.nominal import step_seconds

    if path is None:
        return _Prices("a nominal machine", step_seconds)
    nodes = profile.load(path).nodes

    def seconds(step: Step) -> float:
        timed = nodes.get(step.name)
        return step_seconds(step) if timed is None else timed.seconds

    return _Prices(path, seconds)


def _share(batch: int | None, ranks: int, parts: int) -> int | None:
    """The examples that a rank computes at once."""
    if batch is None:
        return None
    if batch % (ranks * parts):
        raise UsageError(
            f"a batch of {batch} has no {ranks * parts} parts of the same size: ranks times "
            "micro-batches divide it"
        )
    return batch // (ranks * parts)
