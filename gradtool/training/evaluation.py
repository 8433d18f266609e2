"""Numbers about a model on data that it is not trained on; over all examples, the last ones too."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any, Literal

import numpy as np

from gradtool.errors import UsageError
from gradtool.ranks.group import ALONE, Group
from gradtool.session import Session
from gradtool.training.data import Arrays, Fitted
from gradtool.training.metrics import Metric
from gradtool.training.order import in_order
from gradtool.training.prefetch import Prefetched

Reduction = Literal["mean", "sum"]
_CLOSE = 1e-3  # relative: far above what rounding does, far below the difference of the two


@dataclass(frozen=True)
class Evaluator:
    """Evaluates a session on data, in batches of `size`."""

    session: Session
    data: Fitted
    metrics: Sequence[Metric]
    size: int
    reduction: Reduction = "mean"
    group: Group = ALONE
    everyone: Group | None = None  # beside the group, stages that have no results
    tells: bool = True

    def __call__(self) -> dict[str, float]:
        """Each metric over all examples; each rank computes its share of the batches.

        Raises:
            UsageError: there are none, or a metric has nothing to count.
        """
        own: list[list[tuple[float, int]]] = []
        with Prefetched(self._batches()) as batches:
            for batch in batches:
                count = self.data.size_of(batch)
                loss, outputs = self._run(batch, count)
                if self.tells:
                    own.append([m.of_batch(loss, outputs, batch, count) for m in self.metrics])
        sums = dict.fromkeys((metric.name for metric in self.metrics), 0.0)
        counts = dict.fromkeys(sums, 0)
        for found in self._of_all(own):
            for metric, (total, number) in zip(self.metrics, found, strict=True):
                sums[metric.name] += total
                counts[metric.name] += number
        return {metric.name: self._finished(metric, sums, counts) for metric in self.metrics}

    def _batches(self) -> Iterator[Arrays]:
        rank, ranks = self.group.rank, self.group.size
        if self.data.examples is None:
            return islice(self.data.epoch(0), rank, None, ranks)
        order = in_order(self.data.examples, self.size)
        return self.data.batches(islice(order, rank, None, ranks))

    def _of_all(self, own: list[list[tuple[float, int]]]) -> Iterator[list[tuple[float, int]]]:
        """What was found of all batches, in their order, of what each rank has found of its own."""
        told = (self.everyone or self.group).gather_bytes(json.dumps(own).encode())
        each = [json.loads(found) for found in told]
        for turn in zip_longest(*each):
            yield from (found for found in turn if found is not None)

    def _finished(
        self, metric: Metric, sums: Mapping[str, float], counts: Mapping[str, int]
    ) -> float:
        if not counts[metric.name]:
            source = self.data.source.source
            raise UsageError(f"{source}: nothing to evaluate: {metric.name} counts no example")
        return metric.finish(sums[metric.name] / counts[metric.name])

    def _run(self, batch: Arrays, count: int) -> tuple[float | None, Mapping[str, Any]]:
        """The mean loss of a batch, and outputs for its examples."""
        fixed = self.data.takes.size
        if fixed is None or count == fixed:
            result = self.session.evaluate(batch, copy=False)
            loss = result.loss
        else:
            return self._padded(batch, count, fixed)
        if loss is not None and self.reduction == "sum":
            loss /= count
        return loss, result.outputs

    def _padded(
        self, batch: Arrays, count: int, size: int
    ) -> tuple[float | None, Mapping[str, Any]]:
        """Fewer examples than the model takes, filled up with the last of them.

        A mean loss over `count` examples and copies of one is taken apart by that of copies alone.
        """
        last = self._repeated(batch, count, [count - 1] * size)
        alone = self.session.evaluate(last).loss
        filled = [*range(count), *[count - 1] * (size - count)]
        result = self.session.evaluate(self._repeated(batch, count, filled))
        outputs = {
            name: array[:count] if array.ndim and array.shape[0] == size else array
            for name, array in result.outputs.items()
        }
        if result.loss is None or alone is None:
            return None, outputs
        return (size * result.loss - (size - count) * alone) / count, outputs

    def _repeated(self, batch: Arrays, count: int, indices: Sequence[int]) -> Arrays:
        made: Arrays = {}
        for name, array in batch.items():
            axis = self.data.takes.axes[name]
            is_counted = axis is not None and array.shape[axis] == count
            made[name] = np.take(array, indices, axis) if is_counted else array
        return made


def reduction_of(session: Session, data: Fitted, example: Arrays) -> Reduction | None:
    """Whether the loss of two examples is the mean of their losses or the sum; None if neither.

    A model that fixes the number of examples cannot be asked: its loss is taken for a mean.
    """
    if data.takes.size is not None or data.size_of(example) < 2:
        return "mean"
    losses = [
        session.evaluate(data.part(example, start, end)).loss
        for start, end in ((0, 2), (0, 1), (1, 2))
    ]
    if any(loss is None or not math.isfinite(loss) for loss in losses):
        return "mean"
    both, first, second = (float(loss or 0.0) for loss in losses)
    close = _CLOSE * (abs(first) + abs(second)) + 1e-12
    if abs(both - (first + second) / 2) <= close:
        return "mean"
    return "sum" if abs(both - first - second) <= close else None
