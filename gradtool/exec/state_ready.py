"""When the state of a step is final: nothing of the step reads or writes it afterwards."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from gradtool.exec.watch import Watch
from gradtool.program import Program


class Settling(Protocol):
    """Observer of final state while the step goes on."""

    def settled(self, name: str) -> None:
        """State has its value for the next step, in its place."""

    def between(self) -> None:
        """A node of the step has run."""


def settling_steps(program: Program) -> dict[str, int | None]:
    """By name of state, the step after which it is final; None if only after all steps.

    The latter is carried to its place after the step.
    """
    last: dict[int, int] = {}
    for index, step in enumerate(program.steps):
        for value in (*step.reads, *step.writes):
            last[program.storage(value)] = index
    found: dict[str, int | None] = {}
    for value, after in program.state.items():
        stays = program.values[after].alias == value
        lying = (program.storage(each) for each in (value, after))
        name = program.values[value].name
        found[name] = max(last[each] for each in lying if each in last) if stays else None
    return found


def put_on(watch: Watch, settling: Settling) -> None:
    """Tell somebody of all that becomes final in the course of a watched step."""
    for name, index in settling_steps(watch.executor.program).items():
        if index is not None:
            watch.after.setdefault(index, []).append(partial(settling.settled, name))
    for index in range(len(watch.executor.calls)):
        watch.after.setdefault(index, []).append(settling.between)


def carried(program: Program) -> list[str]:
    """The state that is final only after the step, when its next value is carried to its place."""
    return [name for name, index in settling_steps(program).items() if index is None]
