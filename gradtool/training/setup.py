"""Facts of a training before its first step; all that can be refused is refused here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import onnx_ir as ir

from gradtool import api, io
from gradtool.errors import UsageError
from gradtool.graph.metadata import SETTLED
from gradtool.losses.output_heads import activations
from gradtool.operators.kernel_sets import Kernels
from gradtool.passes.synchronized import synchronized
from gradtool.passes.update_groups import Updates
from gradtool.text.units import format_bytes
from gradtool.training.callbacks import Watcher
from gradtool.training.data import Arrays, BoundDataset
from gradtool.training.examples import dims_of, fixed_inside, sample_of
from gradtool.training.fit import Fit, NothingFits
from gradtool.training.graphs import Graphs, Recipe, evaluated_in_parts, graphs_of
from gradtool.training.input_spec import InputSpec
from gradtool.training.lengths import lengths_of
from gradtool.training.memory_fit import fitted_in_length
from gradtool.training.metrics import Metric, deciding, metrics, ranked
from gradtool.training.options import BATCH, TEXTS, TrainOptions
from gradtool.training.padding import Lengths
from gradtool.training.phases import Phase
from gradtool.training.reading import bound, copied, look_through, sources_of
from gradtool.training.resuming import LENGTH
from gradtool.training.sampler import Order
from gradtool.training.schedules import Schedule
from gradtool.training.sizing import kernels_for, rates_of, sized
from gradtool.training.sources import Given, Source

PLAN_SUFFIX = ".json"
STATISTICS = (
    "warning: BatchNormalization takes the statistics of each micro-batch, not of the whole batch"
)
FIXED = "its exporter wrote that into nodes, though its inputs are open"


@dataclass(frozen=True)
class Setup:
    """A training made ready.

    `data` are those to train on, and perhaps those to evaluate on; `order` is None where the data
    come in an order of their own.  `steps` are all, or `epochs` end it.  `kernels` are those that
    compute.  `fit` is how a memory is kept to, where one is.
    """

    graphs: Graphs
    updates: Updates
    options: TrainOptions
    data: Sequence[BoundDataset]
    order: Order | None
    steps: int | None
    epochs: int | None
    schedule: Schedule
    metrics: Sequence[Metric]
    kernels: Kernels
    fit: Fit | None = None
    ranks: int = 1
    lengths: Lengths | None = None
    phases: Sequence[Phase] = ()  # where some parameters are trained from an epoch on

    @property
    def part(self) -> int:
        """The examples that are computed at once."""
        assert self.options.batch is not None  # noqa: S101 - it was sized
        return self.options.batch // (self.options.micro_batches * self.ranks)

    @property
    def evaluates_loss(self) -> bool:
        """Whether an evaluation is of the loss."""
        return any(m.of_loss for m in self.metrics)

    def described(self) -> dict[str, Any]:
        """The identity of a checkpoint: whatever decides the bits of the steps that follow."""
        options, rates = self.options, self.schedule
        return {
            "recipe": {
                **{n: str(v) for n, v in vars(self.updates).items() if n != "unfrozen"},
                "unfreeze": list(options.unfreeze) or None,
                "lr": rates.peak,
                "schedule": rates.text,
                "warmup": rates.warmup,
                "length": {name: vars(options)[name] for name in LENGTH},
                "batch": self.order.size if self.order else options.batch,
                "micro_batches": self._parts(),
                "loss_scale": options.loss_scale,
                "kernels": self.kernels,
                "shuffle": options.shuffle,
                "seed": options.seed,
                "ema": options.ema,
                "lengths": options.lengths,
                "evaluation": self._evaluation(),
            },
            "data": self.data[0].described(),
            "model": self.graphs.described(),
        }

    def _parts(self) -> int:
        """In how many parts a step is computed: what a model that fixes its batch leaves of that.

        Ranks do not count: they take shares of each.
        """
        fixed = self.data[0].takes.size
        assert self.options.batch is not None  # noqa: S101 - it was sized
        return self.options.micro_batches if fixed is None else self.options.batch // fixed

    def _evaluation(self) -> dict[str, Any] | None:
        """The choice of the best weights, and early stopping."""
        if not self.metrics:
            return None
        of = self.data[1].described()
        return {"data": of, "metric": deciding(self.metrics).name, "every": self.options.every}

    @property
    def dims(self) -> dict[str, int] | None:
        """The sizes of all micro-batches of a rank; None where they may differ."""
        if self.data[0].examples is None or (self.order and self.order.lengths is not None):
            return None
        return dims_of(self.graphs.model, self.data[0], self.part)

    def sample(self, most: int) -> Arrays:
        """Up to `most` examples of the data, to learn sizes of."""
        return sample_of(self.data[0], most)


@dataclass(frozen=True)
class Asked:
    """A training as it is asked for, on some ranks: of a model, on `data`."""

    recipe: Recipe
    options: TrainOptions
    data: Given
    evaluate: Given | None
    names: Mapping[str, str]
    watcher: Watcher
    ranks: int = 1


def prepared(asked: Asked) -> Setup:
    """Read, build and hold against each other what a training is of.

    Where a memory has no room for the longest text, texts are taken as short as it has room for.

    Raises:
        UsageError: data do not fit the model, or options cannot be combined.
    """
    try:
        return _prepared(asked)
    except NothingFits as error:
        options = asked.options
        if error.length is None or options.memory is None:
            raise
        asked.watcher.said(
            f"--memory {format_bytes(options.memory)}: no step of the longest texts fits, one of "
            f"{error.length} tokens does: as if --max-length {error.length} were given"
        )
        shorter = replace(options, max_length=error.length, micro_batches=error.parts)
        return _prepared(replace(asked, options=shorter))


def _prepared(asked: Asked) -> Setup:
    recipe, options, watcher, ranks = asked.recipe, asked.options, asked.watcher, asked.ranks
    if options.memory is not None and ranks > 1:
        raise UsageError("a memory to keep to is of one process: leave it out on several ranks")
    sources = sources_of(asked.data, asked.evaluate, options, watcher)
    graphs = graphs_of(recipe, options, in_two=options.in_two or ranks > 1)
    is_default = options.batch is None
    read, options = _read(graphs, sources, asked.names, options, ranks)
    takes = read[0].takes
    is_odd = graphs.update is not None and graphs.parts.kind is None and takes.size is not None
    if (options.in_two and graphs.update is None) or is_odd:
        graphs = graphs_of(recipe, options, in_two=True, takes=takes)
    by_rows = options.shard_tables and ranks > 1  # updates are made anew, and tell again
    look_through(read, recipe, watcher)
    _say(replace(graphs, said=()) if by_rows else graphs, read, watcher)
    order = _order(read[0], options)
    if is_default:
        _say_default(read[0], order, watcher)
    if options.sync_batchnorm and ranks > 1:
        graphs = graphs.planned(synchronized(graphs.model, ranks))
    if len(read) > 1 and graphs.update is None:
        graphs = evaluated_in_parts(graphs, takes)
    fit, kernels = None, kernels_for(options, ranks)
    if options.memory is not None:
        steps = _length(options, order)[0]
        fit = fitted_in_length(options.memory, recipe, options, kernels, read, watcher, steps)
        graphs = fit.chosen.graphs
        options = replace(options, micro_batches=fit.chosen.micro_batches)
    if options.micro_batches > 1 and _takes_statistics(graphs.model):
        watcher.said(STATISTICS)
    steps, epochs = _length(options, order)
    evaluates = len(read) > 1
    rates = rates_of(graphs.first, options, steps, sources[0].source, evaluates=evaluates)
    watched = [] if len(read) == 1 else metrics(
        ranked(options.metric), graphs.training.labels, read[0].targets(graphs.training.shifts),
        activations(graphs.training.model),
    )  # fmt: skip
    of_one = partial(sample_of, read[0], options.batch or 1)
    sizes = None if read[0].texts else options.lengths  # texts are padded as they are read
    rounded = lengths_of(sizes, recipe, takes, of_one, watcher)
    made = Setup(
        graphs, recipe.updates, options, read, order, steps, epochs, rates, watched, kernels, fit,
        ranks, rounded,
    )  # fmt: skip
    if options.plan == "keep":
        return made
    return replace(made, graphs=graphs.planned(planned(made)))


def _read(
    graphs: Graphs, sources: Sequence[Source], names: Mapping[str, str], options: TrainOptions,
    ranks: int,
) -> tuple[list[BoundDataset], TrainOptions]:  # fmt: skip
    """Data held against what a step takes, and the options with the examples of a step."""
    takes = InputSpec.of(graphs.training.model, graphs.inner, graphs.training.labels)
    takes = replace(takes, shifts=graphs.training.shifts)
    read = bound(sources, takes, names, options)
    found = sized(options, takes.size, ranks, read[0].examples, usual(read[0]))
    if takes.size is not None:
        return read, found
    fixed = _fixed_inside(graphs, read, found, ranks)
    if fixed is None:
        return read, found
    takes = replace(takes, size=fixed)
    return bound(sources, takes, names, options), sized(options, fixed, ranks)


def _say(graphs: Graphs, read: Sequence[BoundDataset], watcher: Watcher) -> None:
    """Report the forms of data, and the fate of updates."""
    fixed, model = read[0].takes.size, graphs.training.model
    settled = model.meta.get(SETTLED, {})
    is_open = any(axis in settled.get(name, ()) for name, axis in read[0].takes.axes.items())
    if fixed is not None and (is_open or io.symbols(model)):
        watcher.said(f"the model computes {fixed} examples at a time: {FIXED}")
    for line in (line for each in read for line in each.said):
        watcher.said(line)
    for line in copied(read[0], graphs.training.labels, graphs.training.shifts):
        watcher.said(f"warning: {line}")
    for line in graphs.said:
        watcher.said(f"warning: {line}")


def usual(data: BoundDataset) -> int:
    """The examples of a step, where nobody says how many."""
    return TEXTS if data.texts else BATCH


def _say_default(data: BoundDataset, order: Order | None, watcher: Watcher) -> None:
    """Tell people of a default batch that is smaller because there are fewer examples."""
    if order is not None and data.takes.size is None and order.size < usual(data):
        watcher.said(f"{data.source.source}: {order.examples} examples: a batch is of {order.size}")


def _fixed_inside(
    graphs: Graphs, read: Sequence[BoundDataset], sized: TrainOptions, ranks: int
) -> int | None:
    """The examples that nodes fix; of a stream it is asked where parts of batches are computed."""
    data, batch = read[0], sized.batch
    assert batch is not None  # noqa: S101 - it was sized
    part = batch // (sized.micro_batches * ranks)
    is_asked = part < batch or len(read) > 1
    if data.examples is None:
        if not is_asked or data.size_of(sample_of(data, batch)) < batch:
            return None
    else:
        part, batch = min(part, data.examples), min(batch, data.examples)
    return fixed_inside(graphs.model, lambda model, n: dims_of(model, data, n), part, batch)


def _order(data: BoundDataset, options: TrainOptions) -> Order | None:
    if data.examples is None:
        return None
    assert options.batch is not None  # noqa: S101 - it was sized
    if data.examples < options.batch:
        raise UsageError(
            f"{data.source.source}: {data.examples} examples are less than a batch of "
            f"{options.batch}: give --batch {data.examples} or less"
        )
    lengths = data.texts.spread if data.texts else None
    return Order(data.examples, options.batch, options.seed, options.shuffle, lengths)


def _length(options: TrainOptions, order: Order | None) -> tuple[int | None, int | None]:
    """How many steps there are, or epochs where only the data know."""
    if options.steps is not None:
        return options.steps, None
    epochs = options.epochs or 1
    return (None, epochs) if order is None else (epochs * order.batches, None)


def planned(setup: Setup) -> ir.Model:
    """The graph with a memory plan in it, for the sizes of the data.

    A plan in a file may be made for other kernels than those that compute: it says what runs when.
    """
    plan, model = setup.options.plan, setup.graphs.model
    dims = dims_of(model, setup.data[0], setup.part)
    if not plan.endswith(PLAN_SUFFIX):
        return api.recompute(model, plan, dims=dims, kernels=setup.kernels).model
    goal = api.load_plan(plan)
    return api.recompute(model, goal, dims=dims, kernels=goal.kernels).model


def sizes_of_part(setup: Setup) -> dict[str, int]:
    """The sizes of what is computed at once."""
    return dims_of(setup.graphs.model, setup.data[0], setup.part)


def _takes_statistics(model: ir.Model) -> bool:
    """Whether a BatchNormalization is in its form for training."""
    return any(node.op_type == "BatchNormalizationTraining" for node in model.graph)
