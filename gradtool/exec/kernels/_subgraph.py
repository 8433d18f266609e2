"""Running the program of a subgraph within a kernel, in the kernel's own workspace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gradtool.errors import MissingData
from gradtool.exec.device import Device
from gradtool.planning.arena import place
from gradtool.planning.liveness import lifetimes
from gradtool.planning.plan import Buffer, Plan
from gradtool.program import Program

MOST_PLANS = 64

_PLANS: dict[tuple[int, int], Plan] = {}


def plan_of(body: Program, formal: int) -> Plan:
    """The plan of a subgraph of `formal` inputs; captured values stay where they are."""
    key = (id(body), formal)
    found = _PLANS.get(key)
    if found is None or found.program is not body:
        captured = set(body.inputs[formal:])
        needed = [b for b in lifetimes(body) if not captured.intersection(b.values)]
        offsets, size = place(needed)
        buffers = tuple(
            Buffer(b.name, b.region, b.bytes, offset, b.first, b.last, b.values)
            for b, offset in zip(needed, offsets, strict=True)
        )
        adapted = max((s.adapted_bytes for s in body.steps), default=0)
        found = Plan("body", body, buffers, size, size, adapted, 0)
        while len(_PLANS) >= MOST_PLANS:
            _PLANS.pop(next(iter(_PLANS)))
        _PLANS[key] = found
    return found


class Body:
    """A subgraph bound to an arena of `plan_of(…).peak` bytes and to its captured arrays."""

    def __init__(self, xp: Any, body: Program, formal: int, captured: Any, arena: Any) -> None:
        from gradtool.exec.executor import Executor

        given: Mapping[int, Any] = dict(zip(body.inputs[formal:], captured, strict=True))
        device = Device("cpu" if xp is np else "cuda", xp)
        plan = plan_of(body, formal)
        self.program = body
        self.executor = Executor(plan, device, _no_data, arena=arena, given=given)

    def input(self, index: int) -> Any:
        """The place of an input, to be written before `run`."""
        return self.executor.arrays[self.program.inputs[index]]

    def output(self, index: int) -> Any:
        """An output of the last `run`."""
        return self.executor.value(self.program.outputs[index])

    def aliases(self, output: int, index: int) -> bool:
        """Whether an output lies in the storage of an input that isn't its own."""
        root = self.program.root(self.program.outputs[output])
        return root in self.program.inputs and root != self.program.inputs[index]

    def run(self) -> None:
        """Compute the outputs from the inputs."""
        self.executor.step()


def _no_data(name: str) -> np.ndarray[Any, Any]:
    raise MissingData(f"initializer {name!r} of a subgraph has no data; run needs the weights")
