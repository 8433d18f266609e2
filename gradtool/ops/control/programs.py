"""The bodies of control flow, as its kernels see them: programs that somebody else runs.

A body needs an arena, a plan and a device; who has them plays the role `bodies`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from gradtool.graph.injection import provided
from gradtool.graph.specs import Spec


class Value(Protocol):
    """A value of a body; `spec` is None where the shape depends on data."""

    @property
    def spec(self) -> Spec | None: ...


class Step(Protocol):
    """A step of a body: its floating-point operations, and the bytes it moves."""

    @property
    def flops(self) -> int | None: ...
    @property
    def moved(self) -> int: ...


class Body(Protocol):
    """The program of a subgraph. Of its inputs the first `formal` are its own."""

    @property
    def values(self) -> Sequence[Value]: ...
    @property
    def steps(self) -> Sequence[Step]: ...
    @property
    def inputs(self) -> tuple[int, ...]: ...
    @property
    def outputs(self) -> tuple[int, ...]: ...
    @property
    def formal(self) -> int: ...
    @property
    def constants(self) -> Mapping[int, np.ndarray[Any, Any]]: ...
    def storage(self, value: int) -> int: ...


class Planned(Protocol):
    """Memory of a body: the bytes of its arena, and of scratch beside it."""

    @property
    def peak(self) -> int: ...
    @property
    def scratch(self) -> int: ...


class Bound(Protocol):
    """A body with its captured values and an arena."""

    def load(self, index: int, value: Any) -> None:
        """Give an input, before `run`."""

    def input(self, index: int) -> Any:
        """The place of an input."""

    def output(self, index: int) -> Any:
        """An output of the last `run`; it may be overwritten by the next one."""

    def result(self, index: int) -> Any:
        """An output of the last `run`, to be kept."""

    def run(self) -> None:
        """Compute the outputs from the inputs."""

    def carry(self, count: int, outputs: int, inputs: int, kept: Sequence[Any]) -> None:
        """Let `count` outputs be inputs of the next turn, from these positions on."""

    def nothing(self, index: int) -> Any:
        """The empty stack of an output when no turn is taken."""


def plan_of(body: Body) -> Planned:
    """The plan of a body; captured values stay where they are."""
    plan: Planned = provided("bodies").plan_of(body)
    return plan


def bound(xp: Any, body: Body, captured: Sequence[Any], arena: Any = None) -> Bound:
    """A body bound to captured values, in an arena of `plan_of(body).peak` bytes, or its own."""
    made: Bound = provided("bodies").BoundBody(xp, body, captured, arena)
    return made


def aliases(body: Body, output: int, index: int) -> bool:
    """Whether an output lies in the storage of an input that isn't its own."""
    root = body.storage(body.outputs[output])
    return root in body.inputs and root != body.inputs[index]


def endless(body: Body) -> bool:
    """Whether the condition after a turn is the one before it, or constantly true."""
    root = body.storage(body.outputs[0])
    return root == body.inputs[1] or bool(np.all(body.constants.get(root, np.False_)))
