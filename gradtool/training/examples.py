"""The number of examples that a model computes at a time, if its inputs leave it open.

An exporter may write the number of examples that it was shown into a Reshape, an Expand or the
first state of a recurrent layer, whatever its inputs say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from gradtool.errors import GradtoolError, UsageError
from gradtool.passes.evaluation import evaluation
from gradtool.program.bind_dims import bound
from gradtool.program.flatten import flatten

Dims = Mapping[str, int]
MOST = 64  # examples that are tried one number after the other


def fixed_inside(
    model: ir.Model, dims_of: Callable[[ir.Model, int], Dims], part: int, batch: int
) -> int | None:
    """The number of examples that the nodes of a training graph fix; None where any number goes.

    One example is tried, then as many as a step computes at once, then all of its `batch`, then
    every number from 2 on.  `dims_of` has the sizes that so many examples give the symbols of a
    model.

    Raises:
        UsageError: the model computes none of these.
    """
    forward = evaluation(model)
    wrong = _wrong(forward, dims_of(forward, 1))
    if wrong is None:
        return None
    numbers: dict[int, None] = dict.fromkeys((part, batch, *range(2, MOST + 1)))
    for count in numbers:
        if count > 1 and _wrong(forward, dims_of(forward, count)) is None:
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
