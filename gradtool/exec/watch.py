"""A watched step: calls before and after the ones of its nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from gradtool.errors import GradtoolError
from gradtool.exec.device import Device
from gradtool.exec.executor import Executor
from gradtool.ops.shared import runtime_limits as allowance

Act = Callable[[], object]


@dataclass(frozen=True)
class Seen:
    """A node of a step as hooks see it: arrays by the names of values, where they lie.

    Before the node has run, `outputs` hold what was there; an input that the node wrote over is
    that output afterwards.
    """

    name: str
    op: str
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]


@dataclass
class Watch:
    """Actions before and after steps of a program, by their numbers."""

    executor: Executor
    before: dict[int, list[Act]] = field(default_factory=dict)
    after: dict[int, list[Act]] = field(default_factory=dict)

    def run(self) -> None:
        """Run one step of the executor, and all actions on the way."""
        with allowance.of_step(self.executor.plan.total):
            for index in range(len(self.executor.calls)):
                for act in self.before.get(index, ()):
                    act()
                self.executor.call(index)
                for act in self.after.get(index, ()):
                    act()

    def see(self, index: int) -> Seen:
        """A node with its arrays as they are now."""
        step = self.executor.program.steps[index]
        inputs, outputs = self._arrays(step.inputs), self._arrays(step.outputs)
        return Seen(step.name, step.op, inputs, outputs)

    def find_nan(self, turn: int) -> None:
        """Let the step `turn` end where a result has the first NaN.

        Raises, when it runs:
            GradtoolError: it names the node, and between what its inputs lie.
        """
        for index in range(len(self.executor.calls)):
            ranges: dict[str, str] = {}
            self.before.setdefault(index, []).insert(0, partial(self._note, index, ranges))
            self.after.setdefault(index, []).insert(0, partial(self._judge, index, ranges, turn))

    def _arrays(self, values: tuple[int | None, ...]) -> Mapping[str, Any]:
        known = self.executor.program.values
        found = {known[v].name: self.executor.value(v) for v in values if v is not None}
        return MappingProxyType(found)

    def _note(self, index: int, ranges: dict[str, str]) -> None:
        """Keep the ranges of the inputs: the node may write over them."""
        ranges.clear()
        for name, held in self.see(index).inputs.items():
            said = _range(self.executor.device, held)
            if said:
                ranges[name] = said

    def _judge(self, index: int, ranges: Mapping[str, str], turn: int) -> None:
        step = self.executor.program.steps[index]
        device = self.executor.device
        for value in step.writes:
            held = self.executor.value(value)
            arrays = held if isinstance(held, list) else [held]
            if any(_has_nan(device, array) for array in arrays):
                read = ", ".join(f"{name!r} {said}" for name, said in ranges.items())
                raise GradtoolError(
                    f"{step.op} {step.name!r} is the first node with a NaN, in step {turn}"
                    + (f"; it reads {read}" if read else "")
                )


def _is_float(held: Any) -> bool:
    """Whether something is an array of floats, the narrow ones of ONNX included."""
    dtype = getattr(held, "dtype", None)
    return dtype is not None and (dtype.kind == "f" or "float" in dtype.name)


def _has_nan(device: Device, array: Any) -> bool:
    """Whether an array has a NaN.  Infinities are no fault: masks are made of them.

    numpy hands an array of a device to its library; host operands of steps stay there.
    """
    return _is_float(array) and bool(np.isnan(device.computable(array)).any())


def _range(device: Device, held: Any) -> str:
    """Between what the numbers of an array of floats lie; empty for anything else."""
    if not _is_float(held) or not held.size:
        return ""
    wide = device.computable(held).astype(np.float64)
    if bool(np.isnan(wide).any()):
        return "with a NaN"
    return f"from {float(wide.min()):.4g} to {float(wide.max()):.4g}"
