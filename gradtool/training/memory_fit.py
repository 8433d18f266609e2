"""How a training keeps to a memory: its data and its options, as steps to be fitted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from gradtool.operators.kernel_sets import Kernels
from gradtool.passes.evaluation import evaluation
from gradtool.text.words import some
from gradtool.training.callbacks import Watcher
from gradtool.training.data import BoundDataset
from gradtool.training.examples import dims_of, sample_of
from gradtool.training.fit import Dims, Fit, NothingFits, fitted, parts_of
from gradtool.training.graphs import Graphs, Recipe, evaluated_in_parts, graphs_of
from gradtool.training.options import TrainOptions

_SHORTEST = 16  # tokens of a text that is worth a step


def fitted_in_length(
    memory: int, recipe: Recipe, options: TrainOptions, kernels: Kernels,
    data: Sequence[BoundDataset], watcher: Watcher, steps: int | None,
) -> Fit:  # fmt: skip
    """How a memory is kept to.

    Raises:
        NothingFits: no step of texts as long as they are; the length that one fits of is noted.
    """
    try:
        return fitted_to(memory, recipe, options, kernels, data, watcher, steps)
    except NothingFits as error:
        error.length = _fitting_length(memory, recipe, options, kernels, data)
        raise


def fitted_to(
    memory: int, recipe: Recipe, options: TrainOptions, kernels: Kernels,
    data: Sequence[BoundDataset], watcher: Watcher, steps: int | None, *, chosen: bool = False,
    width: int | None = None,
) -> Fit:  # fmt: skip
    """How a memory is kept to: a model that fixes the examples of a step fixes the parts.

    So do options whose parts are `chosen`, or several.  Beside steps the memory has room for
    evaluations.  There is one part where the loss of a batch does not follow from those of parts.
    Texts may be of another `width` than they are, which is tried with the most parts alone.

    Raises:
        NothingFits: whatever the parts and the plan.
    """
    assert options.batch is not None  # noqa: S101 - it was sized
    batch, evaluates, fixed = options.batch, len(data) > 1, data[0].takes.size

    @cache
    def graphs_in(*, in_two: bool) -> Graphs:
        found = graphs_of(recipe, options, in_two=in_two, takes=data[0].takes)
        return evaluated_in_parts(found, data[0].takes) if evaluates and not in_two else found

    def step_in(parts: int, examples: int) -> tuple[Graphs, Dims, list[Dims]]:
        graphs = graphs_in(in_two=parts > 1 or options.loss_scale is not None)
        watcher.tries(parts, examples)
        dims = dims_of(graphs.model, data[0], examples, width)
        model = evaluation(graphs.model) if evaluates else graphs.model
        return graphs, dims, [dims_of(model, each, examples, width) for each in data[1:]]

    is_open = fixed is None and not chosen and options.micro_batches == 1
    counts = parts_of(batch) if is_open else [options.micro_batches]
    if len(counts) > 1 and graphs_in(in_two=True).parts.kind is None:
        why = graphs_in(in_two=True).parts.why
        watcher.said(f"the loss mixes the examples of a batch ({why}): it is computed in one part")
        counts = [1]
    if width is not None:
        counts = counts[-1:]
    batch_bytes = sum(array.nbytes for array in sample_of(data[0], batch).values())
    fit = fitted(memory, batch_bytes, batch, counts, step_in, kernels, steps)
    if fit.left_out:
        watcher.said(
            f"no time was left to look for plans of {some(map(str, fit.left_out))} micro-batches"
        )
    return fit


def _fitting_length(
    memory: int, recipe: Recipe, options: TrainOptions, kernels: Kernels,
    data: Sequence[BoundDataset],
) -> int | None:  # fmt: skip
    """The most tokens of a text of which a step fits; None where nothing is to be cut, or to gain.

    It is found by halves, among multiples of an eighth of the power of two below the longest text.
    """
    texts = data[0].texts
    if texts is None or options.max_length is not None or texts.fixed is not None:
        return None
    longest = texts.longest
    grain = max(1 << max(longest.bit_length() - 4, 0), _SHORTEST)
    low, high = 0, -(-longest // grain)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            fitted_to(memory, recipe, options, kernels, data, Watcher(), None, width=middle * grain)
        except NothingFits:
            high = middle
        else:
            low = middle
    return low * grain or None
