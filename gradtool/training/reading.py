"""Data opened and checked against a step's inputs; and those that are held out of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from gradtool.errors import UsageError
from gradtool.losses.labels import COPIED
from gradtool.training.callbacks import Watcher
from gradtool.training.data import BoundDataset
from gradtool.training.graphs import Recipe
from gradtool.training.input_spec import InputSpec
from gradtool.training.iterables import OVER
from gradtool.training.lengths import require_heeded
from gradtool.training.options import TrainOptions
from gradtool.training.sampler import permutation
from gradtool.training.sources import Examples, Given, Lazy, Source, Stream, opened
from gradtool.training.text import Text
from gradtool.training.text_trial import ACROSS

COMPARED = 64  # examples whose labels are held against other inputs
_SPLIT = 1 << 32  # an epoch that no training has: its order tells what is held out


def sources_of(
    data: Given, evaluate: Given | None, options: TrainOptions, watcher: Watcher
) -> list[Source]:
    """Training data, and perhaps evaluation data; the watcher hears of texts that are read.

    Raises:
        UsageError: one cannot be read, or cannot be taken as often as is asked for.
    """
    if options.split is not None and evaluate is not None:
        raise UsageError("--split cannot be combined with --eval: it holds examples out for that")
    first = opened(data, options.seed, options)
    _told(first, watcher)
    _require_again(first, (options.epochs or 1) > 1)
    if options.split is not None and isinstance(first, Stream):
        raise UsageError(
            f"{first.source}: --split needs data with a number of examples: yield those to "
            "evaluate on apart, for --eval"
        )
    if evaluate is None:
        return [first]
    classes = first.classes if isinstance(first, Examples | Lazy) else {}
    second = opened(evaluate, options.seed, options, classes)
    _told(second, watcher)
    _require_again(second, is_repeated=True)
    return [first, second]


def _require_again(source: Source, is_repeated: bool) -> None:  # noqa: FBT001 - one of two calls
    if isinstance(source, Stream) and source.once and is_repeated:
        raise UsageError(f"{source.source}: {OVER}")


def _told(source: Source, watcher: Watcher) -> None:
    if isinstance(source, Lazy) and isinstance(source.of, Text):
        source.of.watcher = watcher


def copied(data: BoundDataset, labels: Collection[str], shifts: Collection[str]) -> list[str]:
    """The warning of labels equal to another input."""
    inputs, names = data.takes.inputs, data.names
    shapes = (inputs[name].shape for name in labels if name in inputs)
    if data.examples is None or all(shape is not None and len(shape) < 2 for shape in shapes):
        return []
    some = data.batch(np.arange(min(COMPARED, data.examples)))
    return [
        COPIED.format(names[name], names[other])
        for name in labels if name in some and name not in shifts and some[name].ndim > 1
        for other, array in some.items()
        if other != name and array.dtype.kind in "iu" and np.array_equal(array, some[name])
    ]  # fmt: skip


def bound(
    sources: Sequence[Source], takes: InputSpec, names: Mapping[str, str], options: TrainOptions
) -> list[BoundDataset]:
    """The data to train on and perhaps to evaluate on, as a model takes them.

    Raises:
        UsageError: they do not fit.
    """
    first = BoundDataset(sources[0], takes, names, options)
    if options.split is None:
        return [first, *(BoundDataset(each, takes, names, options, first) for each in sources[1:])]
    if first.examples is None:
        raise UsageError(f"{first.source.source}: --split needs data with a number of examples")
    count = options.held_out(first.examples)
    drawn = permutation(first.examples, options.seed, _SPLIT)
    held, kept = np.sort(drawn[:count]), np.sort(drawn[count:])
    found = [first.restricted(kept), first.restricted(held)]
    first.said.append(f"{first.source.source}: {count} of {first.examples} examples are held out")
    found[0].said.extend(first.said)
    return found


def look_through(read: Sequence[BoundDataset], recipe: Recipe, watcher: Watcher) -> None:
    """Check the numbers of all data, and how they are padded, and tell people of the model.

    Raises:
        UsageError: a number is none that the model takes, or it sees what it must not of texts.
    """
    for each in read:
        each.look_through()
        if each.texts:
            source, trial = each.source.source, each.texts.trial(each.batch, each.takes.size)
            if require_heeded(recipe, each.takes, source, *trial, each.texts.text.packed):
                watcher.said(f"{source}: {ACROSS}")
    for line in recipe.said:
        watcher.said(line)
