"""A training of ranks as a trace for Perfetto: a process a rank, on the same clock.

Threads of a rank are its steps, its nodes, and its waiting for others.  Messages to others go on
beside them, each sum in a row of its own: nodes that run meanwhile hide it.

Source: Trace Event Format (Google): events X (complete), b and e (asynchronous), M (metadata);
times are in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from gradtool.reports.page_data import shown
from gradtool.reports.trace import Event, trace_text

LANES = ("steps", "nodes", "waits")
BESIDE = "sends"


class Spanned(Protocol):
    """A span of time; see `gradtool.training.timeline.Span`."""

    @property
    def lane(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...


def timeline_trace(ranks: Sequence[Sequence[Spanned]], model: str) -> str:
    """The spans of each rank as JSON; times begin with the first of them."""
    first = min((span.start for spans in ranks for span in spans), default=0.0)
    events = [e for rank, spans in enumerate(ranks) for e in _of_rank(rank, spans, first)]
    facts: dict[str, Any] = {"model": shown(model), "ranks": len(ranks), "time": "measured"}
    return trace_text(events, facts)


def _of_rank(rank: int, spans: Sequence[Spanned], first: float) -> Iterator[Event]:
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
