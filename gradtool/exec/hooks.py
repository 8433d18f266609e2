"""Callbacks in the course of a step, with its names and arrays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Literal

from gradtool.exec.executor import Executor
from gradtool.exec.results import Result
from gradtool.exec.watch import Seen, Watch
from gradtool.program import Program

When = Literal["before", "after"]
OnNode = Callable[[Seen], object]
OnGradient = Callable[[str, Any], object]
OnStart = Callable[[Mapping[str, Any]], object]
OnEnd = Callable[[Result], object]


def final_steps(program: Program, gradients: Mapping[str, int]) -> dict[str, int | None]:
    """By name of a gradient, the step after which it may be changed in place.

    None where that would change something else: a value that backward goes on with, another
    result, what the step is given.
    """
    touches: dict[int, list[int]] = {}
    for index, step in enumerate(program.steps):
        for root in dict.fromkeys(program.storage(v) for v in (*step.reads, *step.writes)):
            touches.setdefault(root, []).append(index)
    results: dict[int, set[int]] = {}
    for value in (*program.outputs, *gradients.values()):
        results.setdefault(program.storage(value), set()).add(value)
    return {
        name: _final(program, touches.get(program.storage(value), []), results, value)
        for name, value in gradients.items()
    }


def _final(
    program: Program, touches: list[int], results: Mapping[int, set[int]], value: int
) -> int | None:
    root = program.storage(value)
    made = any(program.storage(v) == root for i in touches for v in program.steps[i].writes)
    if len(results[root]) > 1 or not made:
        return None
    updates = [i for i in touches if program.steps[i].stage == "update"]
    others = [i for i in touches if program.steps[i].stage != "update"]
    if not others or (updates and updates[0] < others[-1]):
        return None
    return others[-1]


@dataclass
class Hooks:
    """Registered callbacks: around steps, around backward nodes, on final gradients."""

    before: list[OnStart] = field(default_factory=list)
    after: list[OnEnd] = field(default_factory=list)
    nodes: list[tuple[When, Sequence[str], OnNode]] = field(default_factory=list)
    gradients: list[tuple[Collection[str], OnGradient]] = field(default_factory=list)

    @property
    def watching(self) -> bool:
        """Whether anything is called while a step runs."""
        return bool(self.nodes or self.gradients)

    @property
    def changing(self) -> set[str]:
        """The names of the gradients with a callback, which may change them."""
        return {name for names, _ in self.gradients for name in names}


class Shared(Exception):
    """Gradients that cannot be changed in place, by the names of their values."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(*names)
        self.names = tuple(names)


def put_on(
    watch: Watch, hooks: Hooks, gradients: Mapping[str, str], scale: float | None = None
) -> None:
    """Call hooks in the course of a watched step; gradients are divided by a loss scale first.

    `gradients` maps names to those of the values that are their gradients.

    Raises:
        Shared: a gradient is read by more than its update.
    """
    for index, when, look in _on_nodes(watch, hooks.nodes):
        acts = watch.before if when == "before" else watch.after
        acts.setdefault(index, []).append(look)
    executor = watch.executor
    numbers = _numbers(executor.program, gradients)
    wanted = numbers if scale is not None else hooks.changing & numbers.keys()
    final = final_steps(executor.program, numbers)
    shared = [name for name in numbers if name in wanted and final[name] is None]
    if shared:
        raise Shared(shared)
    for name, value in numbers.items():
        last = final[name]
        if name not in wanted or last is None:
            continue
        if scale is not None:
            watch.after.setdefault(last, []).append(partial(_divide, executor, value, scale))
        for names, call in hooks.gradients:
            if name in names:
                show = partial(_show, call, name, executor, value)
                watch.after.setdefault(last, []).append(show)


def _on_nodes(
    watch: Watch, nodes: Sequence[tuple[When, Sequence[str], OnNode]]
) -> Iterator[tuple[int, When, Callable[[], object]]]:
    for index, step in enumerate(watch.executor.program.steps):
        if step.stage not in ("backward", "recompute"):
            continue
        for when, patterns, call in nodes:
            if any(step.name == p or fnmatchcase(step.name, p) for p in patterns):
                yield index, when, partial(_see, call, watch, index)


def _numbers(program: Program, gradients: Mapping[str, str]) -> dict[str, int]:
    """The gradients of a step of a program, but zero ones, which are constants."""
    made = {v for step in program.steps for v in step.writes}
    numbers = {d.name: v for v, d in enumerate(program.values) if program.storage(v) in made}
    return {name: numbers[value] for name, value in gradients.items() if value in numbers}


def _see(call: OnNode, watch: Watch, index: int) -> None:
    call(watch.see(index))


def _show(call: OnGradient, name: str, executor: Executor, value: int) -> None:
    call(name, executor.value(value))


def _divide(executor: Executor, value: int, scale: float) -> None:
    gradient = executor.value(value)
    executor.device.xp.multiply(gradient, gradient.dtype.type(1 / scale), out=gradient)
