"""The examples that a model computes at a time, and the sizes of those that the data have.

Inputs may leave their number open where nodes do not: an exporter may write the number of examples
that it was shown into a Reshape, an Expand or the first state of a recurrent layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from gradtool import io
from gradtool.errors import GradtoolError, OpenSizes, UsageError
from gradtool.exec import feeds
from gradtool.graph.deciding import of_symbol
from gradtool.passes.evaluation import evaluation
from gradtool.program.bind_dims import bound
from gradtool.program.flatten import flatten
from gradtool.training.data import Arrays, BoundDataset

Dims = Mapping[str, int]
MOST = 64  # examples that are tried one number after the other


def fixed_inside(
    model: ir.Model, sizes: Callable[[ir.Model, int], Dims], part: int, batch: int
) -> int | None:
    """The number of examples that the nodes of a training graph fix; None where any number goes.

    One example is tried, then as many as a step computes at once, then all of its `batch`, then
    every number from 2 on.  `sizes` has those that so many examples give the symbols of a
    model.

    Raises:
        UsageError: the model computes none of these.
    """
    forward = evaluation(model)
    wrong = _wrong(forward, sizes(forward, 1))
    if wrong is None:
        return None
    numbers: dict[int, None] = dict.fromkeys((part, batch, *range(2, MOST + 1)))
    for count in numbers:
        if count > 1 and _wrong(forward, sizes(forward, count)) is None:
            return count
    raise UsageError(
        f"the model does not compute {batch} examples, nor any other number that was tried: {wrong}"
    )


def _wrong(model: ir.Model, dims: Dims) -> GradtoolError | None:
    """The mismatch of a model at some sizes of its symbols."""
    try:
        flatten(bound(model, dims) if dims else model, dims=dims)
    except GradtoolError as error:
        return error
    return None


def sample_of(data: BoundDataset, most: int) -> Arrays:
    """Up to so many examples of the data, to learn sizes of.

    Raises:
        UsageError: there are none.
    """
    if data.examples is not None:
        return data.batch(np.arange(min(most, data.examples)))
    first = data.first()
    if first is None:
        raise UsageError(f"{data.source.source}: yields no batch")
    return data.part(first, 0, most)


def dims_of(
    model: ir.Model, data: BoundDataset, examples: int, width: int | None = None
) -> dict[str, int]:
    """The sizes of what a graph leaves open, of so many examples; of texts in another width."""
    batch = sample_of(data, examples)
    if width is not None and data.texts is not None:
        batch = data.texts.cut(batch, width)
    found, names = feeds.sizes(model, batch), io.symbols(model)
    if lacking := [name for name in names if name not in found]:
        raise OpenSizes(lacking, {name: of_symbol(model.graph, name) for name in lacking})
    return {name: found[name] for name in names}
