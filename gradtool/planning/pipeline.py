"""The stages and order of a pipeline: pure functions of numbers.

A model is a line of places, one for each node of its forward pass; a cut before a place gives all
from there on to a later stage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gradtool.errors import UsageError
from gradtool.text.json_schema import Amount, Count

SLACK = 0.05  # of the optimum: anything so near counts as good
Array = np.ndarray[Any, np.dtype[np.float64]]
Cost = Callable[[int, int], Array]  # of a stage that ends before a place, by where it begins
Limits = Sequence[tuple[Cost, float]]
Phase = Literal["forward", "backward"]
Turn = tuple[Phase, int]  # a phase and the number of its micro-batch


@dataclass(frozen=True)
class Line:
    """The costs of each place of a model.

    `seconds` are those of its forward and its backward nodes, `held` the bytes of its parameters,
    their sums and their state, `saved` those of its residuals.  `crossing[p]` are the bytes that go
    over a cut before place p, there and back; `trained` says whether it has a trained parameter.
    """

    seconds: Sequence[float]
    held: Sequence[int]
    saved: Sequence[int]
    crossing: Sequence[int]
    trained: Sequence[bool]


def in_flight(stages: int, stage: int, micro_batches: int) -> int:
    """The most micro-batches that a stage has begun and not ended."""
    return min(stages - stage, micro_batches)


def turns(stages: int, stage: int, micro_batches: int) -> list[Turn]:
    """The turns of a stage in a step, in order: one forward, one backward.

    The first `stages - stage - 1` turns are forward, so that all stages have something to do.

    Source: PipeDream-Flush (Narayanan et al. 2021, Memory-Efficient Pipeline-Parallel DNN
    Training), the schedule of Megatron-LM without interleaving.
    """
    ahead = in_flight(stages, stage, micro_batches) - 1
    found: list[Turn] = [("forward", number) for number in range(ahead)]
    for number in range(micro_batches):
        if ahead + number < micro_batches:
            found.append(("forward", ahead + number))
        found.append(("backward", number))
    return found


def cuts(line: Line, stages: int, micro_batches: int) -> list[int]:
    """The places before which a model is cut into balanced stages.

    The slowest stage is as fast as it can be; of all cuts that come within `SLACK` of that, those
    whose stage with the most memory has the least; and of those within `SLACK` of this one, those
    over which the fewest bytes go.  Every stage has a trained parameter.

    Raises:
        UsageError: there are not as many parameters for so many stages.

    Source: dynamic programming over the places, as in PipeDream (Narayanan et al. 2019), §3.1,
    which minimises the slowest stage alone.
    """
    if stages == 1:
        return []
    work = _Work(line, stages, micro_batches)
    slowest = work.best(work.seconds, [])
    _require(slowest, stages, sum(line.trained))
    limits: list[tuple[Cost, float]] = [(work.seconds, slowest * (1 + SLACK))]
    limits.append((work.memory, work.best(work.memory, limits) * (1 + SLACK)))
    return work.cheapest(limits)


def _require(slowest: float, stages: int, trained: int) -> None:
    if slowest == np.inf:
        raise UsageError(
            f"--stages {stages}: every stage trains a parameter, and only {trained} places of the "
            "model have any: take fewer stages"
        )


class _Work:
    """Costs of runs of places as stages, and the best cuts by them."""

    def __init__(self, line: Line, stages: int, micro_batches: int) -> None:
        self._count, self._stages, self._micro_batches = len(line.seconds), stages, micro_batches
        self._seconds, self._held, self._saved, self._trained = (
            np.concatenate([[0.0], np.cumsum(np.asarray(each, np.float64))])
            for each in (line.seconds, line.held, line.saved, line.trained)
        )
        self._crossing: Array = np.asarray(line.crossing, np.float64)

    def seconds(self, stage: int, end: int) -> Array:
        """Seconds of a stage that ends before a place, by its first place."""
        del stage
        found: Array = self._seconds[end] - self._seconds[:end]
        return found

    def memory(self, stage: int, end: int) -> Array:
        """Bytes of such a stage, as far as they follow from its places."""
        kept = in_flight(self._stages, stage, self._micro_batches)
        held: Array = self._held[end] - self._held[:end]
        saved: Array = self._saved[end] - self._saved[:end]
        return np.add(held, kept * saved)

    def sent(self, stage: int, end: int) -> Array:
        """Bytes over the cut at the begin of such a stage."""
        found = np.zeros(end) if stage == 0 else self._crossing[:end]
        return np.asarray(found, np.float64)

    def best(self, cost: Cost, limits: Limits) -> float:
        """The least possible maximum over the stages, of all cuts within limits."""
        return float(self._filled(cost, np.maximum, limits)[0][-1, -1])

    def cheapest(self, limits: Limits) -> list[int]:
        """The cuts of the least sum of bytes sent over them, within limits."""
        _, begins = self._filled(self.sent, np.add, limits)
        found, end = list[int](), self._count
        for stage in reversed(range(1, self._stages)):
            end = int(begins[stage, end])
            found.append(end)
        return found[::-1]

    def _filled(self, cost: Cost, joined: np.ufunc, limits: Limits) -> tuple[Any, Any]:
        """By stage and the place before which it ends, the best cost and its first place."""
        best = np.full((self._stages, self._count + 1), np.inf)
        begins = np.zeros(best.shape, np.int64)
        for stage in range(self._stages):
            for end in range(1, self._count + 1):
                before = best[stage - 1, :end] if stage else np.where(np.arange(end), np.inf, 0.0)
                found = joined(before, cost(stage, end))
                found[self._trained[:end] == self._trained[end]] = np.inf
                for other, limit in limits:
                    found[other(stage, end) > limit] = np.inf
                begin = int(found.argmin())
                best[stage, end], begins[stage, end] = found[begin], begin
        return best, begins


@dataclass(frozen=True)
class Drawn:
    """A turn of a stage in time."""

    stage: Count
    phase: Phase
    micro_batch: Count
    start_seconds: Amount
    end_seconds: Amount


@dataclass(frozen=True)
class Pace:
    """The seconds of a turn of each stage, and of its messages over each boundary.

    `first` are those that pass before a stage can begin, while parameters are given to it.
    """

    forward: Sequence[float]
    backward: Sequence[float]
    up: Sequence[float]
    down: Sequence[float]
    first: Sequence[float]


def timeline(pace: Pace, micro_batches: int) -> list[Drawn]:
    """The turns of all stages in time, by stage; a turn waits for messages of another one.

    Messages go beside the computation of a stage, one after the other.
    """
    stages = len(pace.forward)
    left = [turns(stages, stage, micro_batches) for stage in range(stages)]
    free = list(pace.first)
    arrived = {("forward", 0, number): 0.0 for number in range(micro_batches)}
    arrived |= {("backward", stages - 1, number): 0.0 for number in range(micro_batches)}
    link: dict[tuple[str, int], float] = {}
    found: list[list[Drawn]] = [[] for _ in range(stages)]
    while any(left):
        stage = next(s for s, turn in enumerate(left) if turn and _of(turn[0], s) in arrived)
        phase, number = left[stage].pop(0)
        takes = pace.forward[stage] if phase == "forward" else pace.backward[stage]
        start = max(free[stage], arrived[phase, stage, number])
        free[stage] = end = start + takes
        found[stage].append(Drawn(stage, phase, number, start, end))
        beyond = stage + (1 if phase == "forward" else -1)
        if 0 <= beyond < stages:
            takes = (pace.up if phase == "forward" else pace.down)[min(stage, beyond)]
            link[phase, stage] = max(end, link.get((phase, stage), 0.0)) + takes
            arrived[phase, beyond, number] = link[phase, stage]
    return [drawn for each in found for drawn in each]


def _of(turn: Turn, stage: int) -> tuple[Phase, int, int]:
    return turn[0], stage, turn[1]
