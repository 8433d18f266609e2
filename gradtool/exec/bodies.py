"""Running the program of a subgraph within a kernel, in the kernel's own workspace.

This plays the role `bodies` (see `gradtool.ops.control.programs`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gradtool.errors import MissingData, UsageError
from gradtool.exec.device import Device
from gradtool.exec.executor import Executor
from gradtool.ops.control.programs import aliases
from gradtool.planning.liveness import lifetimes
from gradtool.planning.packing import place
from gradtool.planning.plan import Plan
from gradtool.program import Program

MOST_PLANS = 64

_PLANS: dict[int, Plan] = {}


def plan_of(body: Program) -> Plan:
    """The plan of a subgraph; captured values stay where they are."""
    key = id(body)
    found = _PLANS.get(key)
    if found is None or found.program is not body:
        captured = set(body.inputs[body.formal :])
        needed = [b for b in lifetimes(body) if not captured.intersection(b.values)]
        packed = place(needed)
        buffers = tuple(b.placed(offset) for b, offset in zip(needed, packed.offsets, strict=True))
        scratch = max((s.scratch_bytes for s in body.steps), default=0)
        found = Plan("body", body, buffers, packed.size, packed.size, scratch, 0)
        while len(_PLANS) >= MOST_PLANS:
            _PLANS.pop(next(iter(_PLANS)))
        _PLANS[key] = found
    return found


class BoundBody:
    """A subgraph bound to its captured values and to an arena of `plan_of(…).peak` bytes.

    Without an arena it takes its own.
    """

    def __init__(self, xp: Any, body: Program, captured: Sequence[Any], arena: Any = None) -> None:
        outer = dict(zip(body.inputs[body.formal :], captured, strict=True))
        given: Mapping[int, Any] = {
            n: a for n, a in outer.items() if body.values[n].spec is not None
        }
        device = Device("cpu" if xp is np else "cuda", xp)
        self.xp = xp
        self.program = body
        self.executor = Executor(plan_of(body), device, _no_data, arena=arena, given=given)
        for number, value in outer.items():
            if number not in given:
                self.executor.dynamic.hold(number, value)

    def load(self, index: int, value: Any) -> None:
        """Give an input, before `run`."""
        number = self.program.inputs[index]
        if self.program.values[number].spec is None:
            self.executor.dynamic.hold(number, value)
            return
        target = self.executor.arrays[number]
        if np.shape(value) != target.shape:
            name = self.program.values[number].name
            raise UsageError(f"{name!r} is {np.shape(value)}, planned for {target.shape}")
        self.xp.copyto(target, value)

    def input(self, index: int) -> Any:
        """The place of an input."""
        return self.executor.value(self.program.inputs[index])

    def output(self, index: int) -> Any:
        """An output of the last `run`; it may be overwritten by the next one."""
        return self.executor.value(self.program.outputs[index])

    def result(self, index: int) -> Any:
        """An output of the last `run`, to be kept."""
        number = self.program.outputs[index]
        found = self.executor.value(number)
        return found if self.program.values[number].spec is None else found.copy()

    def run(self) -> None:
        """Compute the outputs from the inputs."""
        self.executor.step()

    def carry(self, count: int, outputs: int, inputs: int, kept: Sequence[Any]) -> None:
        """Let `count` outputs be inputs of the next turn, from these positions on.

        `kept` has room for those that `aliases`; those of unknown size are held.
        """
        numbers = self.program.inputs[inputs : inputs + count]
        held = {
            k: self.result(outputs + k)
            for k, number in enumerate(numbers)
            if self.program.values[number].spec is None
        }
        sized = [k for k in range(count) if k not in held]
        crossed = [k for k in sized if aliases(self.program, outputs + k, inputs + k)]
        for k in crossed:
            self.xp.copyto(kept[k], self.output(outputs + k))
        for k in sized:
            source = kept[k] if k in crossed else self.output(outputs + k)
            self.xp.copyto(self.input(inputs + k), source)
        for k, value in held.items():
            self.load(inputs + k, value)

    def nothing(self, index: int) -> Any:
        """The empty stack of an output when no turn is taken."""
        datum = self.program.values[self.program.outputs[index]]
        known = datum.spec or datum.least
        if known is None:
            raise UsageError(f"{datum.name!r} has no known rank, and no turn of the loop made it")
        return self.xp.empty((0, *known.shape), known.dtype)


def _no_data(name: str) -> np.ndarray[Any, Any]:
    raise MissingData(f"initializer {name!r} of a subgraph has no data; run needs the weights")
