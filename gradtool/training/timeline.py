"""The timeline of a rank: its nodes, what is on its way to others, and its waiting for them.

Times are measured, so no two timelines are the same.  They count from where all ranks have met,
which makes clocks of several machines one, to the time that a message takes.

Source of the trace: Trace Event Format (Google): events X (complete), b and e (asynchronous), M
(metadata); times are in microseconds.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from gradtool.exec.state_ready import Settling
from gradtool.graph.families import split_name
from gradtool.graph.randomness import HANDED, TOGETHER
from gradtool.program import Program
from gradtool.ranks.group import Array, Group, Pending, Window
from gradtool.reports.page_data import shown
from gradtool.reports.trace import Event, trace_text

KEPT = 5  # steps
LANES = ("steps", "nodes", "waits")
BESIDE = "sends"


class Span(NamedTuple):
    """Something that took from `start` to `end`, in seconds.

    `lane` is `steps`, `nodes`, `waits` or `sends`; `kind` is the stage of a node, or what it does
    together with others.
    """

    lane: str
    name: str
    kind: str
    start: float
    end: float


class Timeline:
    """The spans of a rank in the latest steps, of which `KEPT` are kept."""

    def __init__(self, group: Group) -> None:
        """Begin to count, on all ranks at once."""
        self._steps: deque[list[Span]] = deque([[]], maxlen=KEPT)
        group.gather(np.array(0))
        self._zero = time.perf_counter()

    def begin(self) -> None:
        """A step of training begins; all that follows until the next one is counted with it."""
        self._steps.append([])

    @contextmanager
    def span(self, lane: str, name: str, kind: str) -> Iterator[None]:
        """Something that is done now."""
        start = self.now()
        try:
            yield
        finally:
            self.note(Span(lane, name, kind, start, self.now()))

    def now(self) -> float:
        """Seconds from where all have met."""
        return time.perf_counter() - self._zero

    def note(self, span: Span) -> None:
        """Something was done."""
        self._steps[-1].append(span)

    def gathered(self, group: Group) -> list[list[Span]]:
        """The spans of each rank, in the order in which they began."""
        spans = sorted((s for step in self._steps for s in step), key=lambda s: (s.start, -s.end))
        found = group.gather_bytes(json.dumps(spans).encode())
        return [[Span(*span) for span in json.loads(each)] for each in found]


def spanned(timeline: Timeline | None, lane: str, name: str) -> AbstractContextManager[None]:
    """Something that is done now, a step or a part of one, in the timeline if there is one."""
    if timeline is None:
        return nullcontext()
    if lane == "steps":
        timeline.begin()
    return timeline.span(lane, name, name.partition(" ")[0])


class Nodes:
    """The nodes of a step, each as long as it takes; tells another who listens."""

    def __init__(self, timeline: Timeline, other: Settling | None) -> None:
        self._timeline, self._other = timeline, other
        self._times: list[tuple[float, float]] = []
        self._last = timeline.now()

    def settled(self, name: str) -> None:
        """State has the value that the next step begins with."""
        if self._other is not None:
            self._other.settled(name)

    def between(self) -> None:
        """A node of the step has run."""
        self._times.append((self._last, self._timeline.now()))
        if self._other is not None:
            self._other.between()
        self._last = self._timeline.now()

    def done(self, program: Program) -> None:
        """Note the nodes of the program that has run."""
        for step, (start, end) in zip(program.steps, self._times, strict=False):
            together = split_name(step.op)[1] in TOGETHER | HANDED
            kind = "together" if together else step.stage
            self._timeline.note(Span("nodes", step.name or step.op, kind, start, end))


class Traced(Group):
    """A group whose sums and waiting are noted."""

    def __init__(self, group: Group, timeline: Timeline) -> None:
        self._group, self._timeline = group, timeline
        self.rank, self.size, self.ordered = group.rank, group.size, group.ordered

    def add(self, array: Array) -> Pending:
        return self._sent("sum", array.nbytes, lambda: self._group.add(array))

    def spread(self, data: Array, counts: Sequence[int], starts: Sequence[int]) -> Pending:
        return self._sent("spread", data.nbytes, lambda: self._group.spread(data, counts, starts))

    def wait(self, pending: Pending) -> None:
        with self._waiting("wait"):
            self._group.wait(pending)
        pending.test()  # which notes it

    def gather(self, array: Array) -> Array:
        with self._waiting("gather"):
            return self._group.gather(array)

    def exchange(self, array: Array, into: Array) -> None:
        with self._waiting("exchange"):
            self._group.exchange(array, into)

    def scatter(self, array: Array, counts: Sequence[int], own: Array, room: Array | None) -> None:
        with self._waiting("scatter"):
            self._group.scatter(array, counts, own, room)

    def expose(self, array: Array) -> Window:
        return self._group.expose(array)

    def deliver(
        self, rows: Array, values: Array, cuts: Sequence[int], rooms: tuple[Array, Array]
    ) -> Iterator[tuple[Array, Array]]:
        arriving = self._group.deliver(rows, values, cuts, rooms)
        while True:
            with self._waiting("deliver"):
                found = next(arriving, None)
            if found is None:
                return
            yield found

    def gather_bytes(self, data: bytes) -> list[bytes]:
        with self._waiting("gather"):
            return self._group.gather_bytes(data)

    def send(self, data: Array, to: int, tag: int) -> Pending:
        return self._sent("hand", data.nbytes, lambda: self._group.send(data, to, tag))

    def receive(self, data: Array, of: int, tag: int) -> None:
        with self._waiting("receive"):
            self._group.receive(data, of, tag)

    def part(self, members: Sequence[int]) -> Group:
        return Traced(self._group.part(members), self._timeline)

    def at(self, step: int) -> None:
        super().at(step)
        self._group.at(step)

    def _waiting(self, name: str) -> AbstractContextManager[None]:
        return self._timeline.span("waits", name, "waits")

    def _sent(self, name: str, size: int, begin: Callable[[], Pending]) -> Pending:
        start = self._timeline.now()
        return _Noted(begin(), self._timeline, f"{name} of {size} bytes", start)


class _Noted:
    """An operation in flight, noted when its end is seen."""

    def __init__(self, pending: Pending, timeline: Timeline, name: str, start: float) -> None:
        self._pending, self._timeline, self._name, self._start = pending, timeline, name, start
        self._done = False

    def test(self) -> bool:
        """Bring it forward; whether it is done."""
        if not self._done and self._pending.test():
            self._done = True
            now = self._timeline.now()
            self._timeline.note(Span("sends", self._name, "sends", self._start, now))
        return self._done


def timeline_trace(ranks: Sequence[Sequence[Span]], model: str) -> str:
    """The spans of each rank for Perfetto, a process a rank; times begin with the first of them.

    Threads of a rank are its steps, its nodes, and its waiting for others.  Messages to others go
    on beside them, each sum in a row of its own: nodes that run meanwhile hide it.
    """
    first = min((span.start for spans in ranks for span in spans), default=0.0)
    events = [e for rank, spans in enumerate(ranks) for e in _of_rank(rank, spans, first)]
    facts: dict[str, Any] = {"model": shown(model), "ranks": len(ranks), "time": "measured"}
    return trace_text(events, facts)


def _of_rank(rank: int, spans: Sequence[Span], first: float) -> Iterator[Event]:
    pid = rank + 1
    yield _named(pid, 0, "process_name", f"rank {rank}")
    yield {
        "ph": "M",
        "name": "process_sort_index",
        "pid": pid,
        "tid": 0,
        "args": {"sort_index": pid},
    }
    for tid, lane in enumerate(LANES, 1):
        yield _named(pid, tid, "thread_name", lane)
    for number, span in enumerate(spans):
        start, end = (round((at - first) * 1e6, 3) for at in (span.start, span.end))
        event = {"name": shown(span.name), "cat": span.kind, "pid": pid, "ts": start}
        if span.lane != BESIDE:
            tid = LANES.index(span.lane) + 1
            yield {"ph": "X", **event, "tid": tid, "dur": round(end - start, 3), "args": {}}
            continue
        beside = {"id": f"{rank}.{number}", "tid": 0}
        yield {"ph": "b", **event, **beside, "args": {}}
        yield {"ph": "e", **event, **beside, "ts": end}


def _named(pid: int, tid: int, kind: str, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}
