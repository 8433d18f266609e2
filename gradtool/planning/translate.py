"""An order of steps in terms of the program that the same model has with other sizes."""

from __future__ import annotations

from collections.abc import Sequence

from gradtool.program import Program


def translated(before: Program, after: Program, order: Sequence[int]) -> list[int]:
    """`order`, whose numbers are those of `before`, in numbers of `after`; steps go by name.

    What is a view with some sizes may be a step with others: a further step runs just before what
    reads it, once for each instance of what it reads itself.
    """
    numbers = {step.name: i for i, step in enumerate(after.steps)}
    made = _Translated(after, {step.name for step in before.steps})
    for number in order:
        step = numbers.get(before.steps[number].name)
        if step is not None:
            made.put(step)
    for step in sorted(made.further - made.latest.keys()):
        made.renew(step)
    return made.order


class _Translated:
    """The order so far; by step the position of its latest instance."""

    def __init__(self, program: Program, known: set[str]) -> None:
        makers = {v: i for i, step in enumerate(program.steps) for v in step.writes}
        self.sources = [
            [makers[r] for v in step.reads if (r := program.storage(v)) in makers]
            for step in program.steps
        ]
        self.further = {i for i, step in enumerate(program.steps) if step.name not in known}
        self.order: list[int] = []
        self.latest: dict[int, int] = {}
        self.read: dict[int, list[int | None]] = {}

    def put(self, step: int) -> None:
        """Append a step, and before it the further steps that it reads."""
        self._renew_sources(step)
        self.latest[step] = len(self.order)
        self.order.append(step)

    def renew(self, step: int) -> None:
        """Append a further step unless it has run on the latest instances of what it reads."""
        self._renew_sources(step)
        read = [self.latest.get(source) for source in self.sources[step]]
        if self.read.get(step) != read:
            self.read[step] = read
            self.put(step)

    def _renew_sources(self, step: int) -> None:
        for source in self.sources[step]:
            if source in self.further:
                self.renew(source)
