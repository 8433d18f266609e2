"""A pool of child processes that survives the death of a child: native code may crash."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

Work = Callable[[Any], Any]


def _serve(work: Work, channel: Connection) -> None:
    while (job := channel.recv()) is not None:
        channel.send(work(job))


class _Child:
    """A process that works off one job at a time."""

    def __init__(self, work: Work) -> None:
        context = multiprocessing.get_context("spawn")
        self.channel, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(work, other), daemon=True)
        self.process.start()
        other.close()
        self.job: Any = None

    def give(self, job: Any) -> None:
        self.job = job
        self.channel.send(job)

    def stop(self) -> None:
        self.process.terminate()
        self.process.join()
        self.channel.close()


def results(
    work: Work, jobs: Sequence[Any], processes: int = 2, seconds: float = 120.0
) -> Iterator[tuple[Any, Any]]:
    """Pairs of a job and its result, as they come; None where a child died or took too long.

    `work` must be importable. Progress goes to stderr.
    """
    left = list(reversed(jobs))
    children = [_Child(work) for _ in range(min(processes, len(jobs)))]
    done = 0
    busy = [c for c in children if left and not c.give(left.pop())]
    while busy:
        ready = wait([c.channel for c in busy], seconds)
        for child in [c for c in busy if c.channel in ready] or list(busy):
            try:
                result = child.channel.recv() if child.channel in ready else None
            except EOFError:
                result = None
            yield child.job, result
            done += 1
            sys.stderr.write(f"\r{done}/{len(jobs)}" + ("\n" if done == len(jobs) else ""))
            sys.stderr.flush()
            busy.remove(child)
            if result is None:
                child.stop()
                if left:
                    child = _Child(work)  # noqa: PLW2901 - a new one in its place
            if left:
                child.give(left.pop())
                busy.append(child)
            elif result is not None:
                child.stop()
