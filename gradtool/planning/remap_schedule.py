"""A schedule remapped to the program that the same model has with other sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gradtool.program import Program


def translated(before: Program, after: Program, order: Sequence[int]) -> list[int]:
    """`order`, numbered as in `before`, in numbers of `after`; steps go by name.

    A view with some sizes may be a step with others: a further step runs just before its readers,
    once for each instance of its own reads.
    """
    numbers = {step.name: i for i, step in enumerate(after.steps)}
    made = _Translated(after, {step.name for step in before.steps})
    for number in order:
        step = numbers.get(before.steps[number].name)
        if step is not None and step not in made.early:
            made.put(step)
        made.early.discard(step)
    made.renew(step for step in range(len(after.steps)) if step not in made.latest)
    return made.order


class _Translated:
    """The order so far; by step the position of its latest instance.

    `stale` are the further steps that something they read, directly or not, has run after; `early`
    those of `order` that ran before their turn, as with these sizes something earlier reads them.
    """

    def __init__(self, program: Program, known: set[str]) -> None:
        makers = {v: i for i, step in enumerate(program.steps) for v in step.writes}
        self.sources = [
            [makers[r] for v in step.reads if (r := program.storage(v)) in makers]
            for step in program.steps
        ]
        self.further = {i for i, step in enumerate(program.steps) if step.name not in known}
        self.readers: dict[int, list[int]] = {}
        for step in sorted(self.further):
            for source in self.sources[step]:
                self.readers.setdefault(source, []).append(step)
        self.stale = set(self.further)
        self.early: set[int | None] = set()
        self.order: list[int] = []
        self.latest: dict[int, int] = {}
        self.read: dict[int, list[int | None]] = {}

    def put(self, step: int) -> None:
        """Append a step, and before it the missing producers of its reads."""
        self.renew(self.sources[step])
        self._append(step)

    def renew(self, steps: Iterable[int]) -> None:
        """Append the stale and missing instances of some steps and of all their producers."""
        waiting, found = list(steps), set[int]()
        while waiting:
            step = waiting.pop()
            if step not in found and (step in self.stale or step not in self.latest):
                found.add(step)
                waiting += self.sources[step]
        for step in sorted(found):  # the order of a program: producers come first
            self.stale.discard(step)
            read = [self.latest.get(source) for source in self.sources[step]]
            if step not in self.further:
                self.early.add(step)
            elif self.read.get(step) == read:
                continue
            self.read[step] = read
            self._append(step)

    def _append(self, step: int) -> None:
        self.latest[step] = len(self.order)
        self.order.append(step)
        waiting = list(self.readers.get(step, ()))
        while waiting:
            reader = waiting.pop()
            if reader not in self.stale:
                self.stale.add(reader)
                waiting += self.readers.get(reader, ())
