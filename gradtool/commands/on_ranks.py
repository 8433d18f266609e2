"""`report --ranks`: memory and time of each rank of a training, on paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import click

from gradtool.commands.call import Choice
from gradtool.commands.discovery import Sizes, meant
from gradtool.commands.options import PATH, filled, switch, together
from gradtool.errors import UsageError
from gradtool.workloads.grad_options import GradOptions
from gradtool.workloads.names import KERNELS, kernels_of

if TYPE_CHECKING:
    from gradtool.commands.call import Call
    from gradtool.commands.output import Reporter
    from gradtool.operators.kernel_sets import Kernels
    from gradtool.program import Step
    from gradtool.reports.ranks import Setup, Sharding
    from gradtool.training.layouts import PaperTraining

    Show = Callable[[Reporter, str], None]

LINK, LATENCY = "1.25GB/s", "20us"
OPTIMIZER = "adamw"


options = together(
    click.option("--ranks", type=click.IntRange(min=2), metavar="N",
                 help="Show what each of N ranks of gradtool train takes, on paper: its "
                      "memory, and the time of a step.  --batch is that of all together."),
    click.option("--shard", type=Choice(["none", "optimizer", "gradients"]),
                 help="With --ranks: what they have parts of.  [default: all in a table]"),
    click.option("--shard-tables", multiple=True, metavar="GLOB",
                 help="With --ranks and --sparse: they have blocks of the rows of tables that "
                      "match."),
    click.option("--staleness", type=click.IntRange(min=0), metavar="K",
                 help="With --shard-tables: rows of other ranks may be K steps old.  "
                      "[default: 0]"),
    click.option("--stages", type=click.IntRange(min=2), metavar="N",
                 help="With --ranks: the model is cut into N stages, which divide the ranks; "
                      "--html draws their turns."),
    switch("--sync-batchnorm", "With --ranks: BatchNormalization takes the statistics of the "
           "examples of all ranks."),
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
)  # fmt: skip


def report(
    call: Call, models: Sequence[str], sizes: Sizes, options: dict[str, Any], form: str
) -> None:
    """Print the memory of a rank and the time of a step, for each way to shard or in stages.

    Raises:
        UsageError: several models, one that holds its gradients, or ranks that do not divide the
            batch.
    """
    from gradtool import io
    from gradtool.commands.models import open_model
    from gradtool.commands.train import recipe_of
    from gradtool.passes.synchronized import synchronized
    from gradtool.training.graphs import graphs_of, require_forward
    from gradtool.training.layouts import PaperTraining
    from gradtool.training.links import Link, parse_rate, parse_time
    from gradtool.training.options import TrainOptions

    ranks, parts = options["ranks"], options["micro_batches"] or 1
    replicas = _replicas(ranks, options)
    link = Link(parse_rate(options["link"] or LINK), parse_time(options["latency"] or LATENCY))
    kernels = kernels_of(options)
    priced = _prices(options["cost"], kernels, call.reporter)
    asked = meant(call, models, sizes, options)
    if len(asked.sources) > 1:
        raise UsageError("--ranks shows one model: name one")
    share = _share(asked.sizes.batch, replicas, parts)
    loaded = open_model(call.reporter, asked.source, replace(asked.sizes, batch=share))
    require_forward(loaded)
    optimizer = OPTIMIZER if options["optimizer"] == "none" else options["optimizer"]
    chosen = filled(GradOptions, asked.options, optimizer=optimizer)
    recipe = recipe_of(call.reporter, loaded, chosen)
    with call.reporter.bar(f"laying {asked.source} out on {ranks} ranks"):
        graphs = graphs_of(recipe, TrainOptions(optimizer=optimizer), in_two=True)
        if options["sync_batchnorm"]:
            graphs = graphs.planned(synchronized(graphs.model, replicas))
        known = dict.fromkeys(io.symbols(graphs.model), 1)
        paper = PaperTraining(graphs, recipe.updates, known, link, priced.seconds, parts, kernels)
        given = Asked(
            asked.source, paper, ranks, optimizer, priced.name,
            f"link {options['link'] or LINK}, latency {options['latency'] or LATENCY}; "
            f"time of nodes: {priced.name}",
        )  # fmt: skip
        show = _sharded(given, options) if options["stages"] is None else _staged(
            given, options
        )  # fmt: skip
    if known:
        call.reporter.say(f"assumed {', '.join(f'{n} = 1' for n in known)} (give --dim NAME=N)")
    show(call.reporter, form)


@dataclass(frozen=True)
class Asked:
    """Layout to compute, and its machine; `told` are remarks on the link and on times."""

    source: str
    paper: PaperTraining
    ranks: int
    optimizer: str
    cost: str
    told: str

    @property
    def how(self) -> Setup:
        """The same for a document."""
        paper = self.paper
        return {
            "optimizer": self.optimizer, "kernels": paper.kernels,
            "micro_batches": paper.micro_batches, "link_bytes_per_second": paper.link.rate,
            "latency_seconds": paper.link.latency, "cost": self.cost,
        }  # fmt: skip


def _sharded(asked: Asked, options: dict[str, Any]) -> Show:
    """Lay ranks out that all have the whole model, for each way to shard."""
    from gradtool.reports.ranks import ranks_json, ranks_table
    from gradtool.training.layouts import OnPaper, layout

    every: list[Sharding] = ["none", "optimizer", "gradients"]
    shards = [options["shard"]] if options["shard"] else every
    found = [
        layout(
            asked.paper, OnPaper(0, asked.ranks), shard=shard, tables=options["shard_tables"],
            staleness=options["staleness"] or 0,
        )
        for shard in shards
    ]  # fmt: skip

    def show(reporter: Reporter, form: str) -> None:
        if form == "json":
            reporter.json(ranks_json(found, asked.source, asked.ranks, asked.paper.dims, asked.how))
            return
        title = f"{asked.source} on {asked.ranks} ranks, {asked.optimizer}"
        reporter.table(ranks_table(found, title, asked.told), form)

    return show


def _staged(asked: Asked, options: dict[str, Any]) -> Show:
    """Lay a model out in stages."""
    from gradtool.commands.drawing import save
    from gradtool.reports.pipeline_page import pipeline_page
    from gradtool.reports.stages import stages_json, stages_table
    from gradtool.text.units import format_bytes
    from gradtool.training.stage_layouts import pipeline

    stages: int = options["stages"]
    shard: Literal["none", "optimizer"] = options["shard"] or "none"
    found = pipeline(asked.paper, stages=stages, replicas=asked.ranks // stages, shard=shard)
    title = f"{asked.source} in {stages} stages on {asked.ranks} ranks, {asked.optimizer}"
    title += "" if shard == "none" else " sharded"

    def show(reporter: Reporter, form: str) -> None:
        path = options["html"]
        texts = {} if path is None else {path: pipeline_page(title, found, asked.told)}
        sizes = save(texts, force=options["force"])
        if form == "json":
            told = asked.source, asked.ranks, asked.paper.dims, asked.how
            reporter.json(stages_json(found, *told, sizes))
            return
        reporter.table(stages_table(found, title, asked.told), form)
        for written, size in sizes.items():
            reporter.remark(f"wrote {written} ({format_bytes(size)})", form)

    return show


@dataclass(frozen=True)
class Prices:
    """The seconds of steps, and their machine."""

    name: str
    seconds: Callable[[Step], float]


def _prices(path: str | None, kernels: Kernels, reporter: Reporter) -> Prices:
    """Prices of a file; a line says so if they are of kernels other than the planned ones."""
    from gradtool.program import profile
    from gradtool.training.links import step_seconds

    if path is None:
        return Prices("a nominal machine", step_seconds)
    found = profile.load(path)
    nodes = found.nodes
    if found.kernels not in (None, kernels):
        reporter.say(
            f"{path}: times are of {KERNELS[found.kernels]}, ranks are laid out for "
            f"{KERNELS[kernels]}"
        )

    def seconds(step: Step) -> float:
        timed = nodes.get(step.name)
        return step_seconds(step) if timed is None else timed.seconds

    return Prices(path, seconds)


def _replicas(ranks: int, options: dict[str, Any]) -> int:
    """Number of ranks with the same stage; without stages, all ranks.

    Raises:
        UsageError: stages do not divide the ranks, or a file cannot be written.
    """
    from gradtool.io import atomic
    from gradtool.training.stages import require_ranks

    stages = options["stages"] or 1
    require_ranks(
        ranks, stages, options["shard"] or "none", sync_batchnorm=options["sync_batchnorm"]
    )
    if options["html"] is not None:
        atomic.require_targets({"--html": options["html"]}, force=options["force"])
    return ranks // stages


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
