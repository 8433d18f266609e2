"""Numbers about a model on data that it is not trained on; over all examples, the last ones too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from typing import Any

import numpy as np

from gradtool.errors import UsageError
from gradtool.passes.loss_parts import LossParts
from gradtool.ranks.group import ALONE, Group
from gradtool.session import Session
from gradtool.training.accumulators import Accumulator, State, packed, unpacked
from gradtool.training.counting import Counted, Counter, apart
from gradtool.training.data import Arrays, BoundDataset
from gradtool.training.metrics import Metric
from gradtool.training.prefetch import Prefetched
from gradtool.training.sampler import in_order


@dataclass(frozen=True)
class Evaluator:
    """Evaluates a session on data, in batches of `size`, whose loss is put together by `parts`.

    Sums of data that the loss needs are counted before, in a turn of their own; those of examples
    that stay as they are once.
    """

    session: Session
    data: BoundDataset
    metrics: Sequence[Metric]
    size: int
    parts: LossParts
    counter: Counter | None = None
    group: Group = ALONE
    everyone: Group | None = None  # beside the group, stages that have no results
    tells: bool = True
    _counted: list[Counted] = field(default_factory=list)

    def __call__(self) -> dict[str, Any]:
        """Each metric over all examples, a number or a table `[C, C]` of counts.

        Each rank computes its share of the batches.

        Raises:
            UsageError: there are none, or a metric has nothing to count.
        """
        accumulators = [metric.start() for metric in self.metrics]
        for states in self._of_all(self._states()):
            for accumulator, state in zip(accumulators, states, strict=True):
                accumulator.add(state)
        return {
            metric.name: self._finished(metric, accumulator)
            for metric, accumulator in zip(self.metrics, accumulators, strict=True)
        }

    def _states(self) -> Iterator[list[State]]:
        """The states of the metrics, of each batch of this rank."""
        counted = self._count()
        with Prefetched(self._batches(self.group.rank, self.group.size)) as batches:
            for batch in batches:
                count = self.data.size_of(batch)
                loss, outputs = self._run(batch, count, counted)
                if self.tells:
                    yield [m.of_batch(loss, outputs, batch, count) for m in self.metrics]

    def rehearse(self) -> None:
        """Evaluate the first batch, on each rank, to find out whether all metrics can be had.

        Raises:
            UsageError: there is none, it cannot be used, or a metric fails on it.
        """
        batch = next(self._batches(0, 1), None)
        if batch is None:
            raise UsageError(f"{self.data.source.source}: yields no batch to evaluate")
        count = self.data.size_of(batch)
        loss, outputs = self._run(batch, count, None)
        for metric in self.metrics if self.tells else ():
            metric.rehearse(metric.of_batch(loss, outputs, batch, count))

    def _batches(self, rank: int, ranks: int) -> Iterator[Arrays]:
        """The batches of a rank."""
        if self.data.examples is None:
            return islice(self.data.epoch(0), rank, None, ranks)
        order = in_order(self.data.examples, self.size)
        return self.data.batches(islice(order, rank, None, ranks))

    def _of_all(self, own: Iterable[list[State]]) -> Iterator[list[State]]:
        """The states of all batches in order, gathered from the ranks."""
        group = self.everyone or self.group
        if group.size == 1:
            yield from own
            return
        each = [unpacked(told) for told in group.gather_bytes(packed(list(own)))]
        for turn in zip_longest(*each):
            yield from (states for states in turn if states is not None)

    def _finished(self, metric: Metric, accumulator: Accumulator) -> Any:
        found = accumulator.value()
        if found is None:
            source = self.data.source.source
            raise UsageError(f"{source}: nothing to evaluate: {metric.name} counts no example")
        return np.asarray(found, np.int64) if metric.is_table else float(found)

    def _count(self) -> Counted | None:
        """The sums of data over all examples."""
        if self.counter is None:
            return None
        if not self._counted:
            with Prefetched(self._batches(self.group.rank, self.group.size)) as batches:
                self._counted.append(self.counter.whole(batches, self.group))
        found = self._counted[0]
        if self.data.examples is None:
            self._counted.clear()
        return found

    def _run(
        self, batch: Arrays, count: int, counted: Counted | None
    ) -> tuple[float | None, Mapping[str, Any]]:
        """The terms of a batch in the mean loss of all examples, for each its own; and outputs."""
        given: Arrays = {}
        if counted is not None and self.counter is not None:
            given = self.counter.feeds(counted, self.data.takes.size or count)
        found: list[Mapping[str, Any]] = []

        def run(batch: Arrays, size: int) -> dict[str, float]:
            """The sum of the losses of examples, where the model gives one."""
            result = self.session.evaluate({**batch, **given}, copy=False)
            found.append({n: a.copy() if size > count else a for n, a in result.outputs.items()})
            if result.loss is None:
                return {}
            return {"loss": result.loss * (size if self.parts.kind != "sum" else 1)}

        loss = apart(self.data, batch, count, run).get("loss")
        outputs = {
            name: array[:count] if array.ndim and array.shape[0] == self.data.takes.size else array
            for name, array in found[0].items()
        }
        if loss is None:
            return None, outputs
        is_share = self.parts.kind == "sum" and counted is not None
        return loss * (counted.examples if is_share and counted else 1) / count, outputs
