"""Results of a step, taken out of the arena."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from gradtool.exec.executor import Executor
from gradtool.exec.measure import Measurement
from gradtool.planning.plan import Plan
from gradtool.text.words import count

Arrays = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Result:
    """Results of a step.

    Arrays are copies, or with `copy=False` views of the arena, which lives as long as one of them.

    Attributes:
        loss: its value; None where the graph has none.
        outputs: arrays by name, of the shapes that the graph declares.
        gradients: arrays by the name of what they are of, in its shape.
        plan: the memory plan of the step, where our executor ran it.
        seconds: the median of the repeated steps.
        measurement: measured bytes, where that was asked for.
        device: where it ran.
        ort_peak_bytes: what stock onnxruntime took beside inputs and weights, where it was run and
            could be measured.
        ort_live_bytes: the most that was allocated at once, where that was asked for.
        ort_planned_bytes: the same of the plan.

    Example:
        training = gt.grad(gt.load("samples/cnn.onnx", dims={"batch": 8}))
        result = gt.run(training, "samples/cnn.npz", measure=True)
        result.measurement.peak, result.plan.total  # bytes
    """

    loss: float | None
    outputs: Arrays
    gradients: Arrays
    plan: Plan | None
    seconds: float
    measurement: Measurement | None = None
    device: str = "cpu"
    ort_peak_bytes: int | None = None
    ort_live_bytes: int | None = None
    ort_planned_bytes: int | None = None

    def __repr__(self) -> str:
        said = ", ".join(f"{name} {value}" for name, value in self._facts().items())
        return f"Result({said})"

    def _repr_html_(self) -> str:
        from gradtool.text.table import facts

        return facts("result of a step", self._facts())

    def _facts(self) -> dict[str, object]:
        """Its facts in numbers: no array is printed."""
        found: dict[str, object] = {} if self.loss is None else {"loss": f"{self.loss:.6g}"}
        found |= {"gradients": len(self.gradients), "outputs": len(self.outputs)}
        found["seconds"] = f"{self.seconds:.3g}"
        return found if self.plan is None else found | {"peak bytes": self.plan.peak}


def counted(result: Result) -> str:
    """Count of gradients; of outputs where a model updates its parameters instead."""
    if result.gradients or not result.outputs:
        return count(len(result.gradients), "gradient")
    return count(len(result.outputs), "output")


def result_of(
    executor: Executor, seconds: float, measurement: Measurement | None = None, *, copy: bool = True
) -> Result:
    """All that an executor's last step computed."""
    loss = executor.program.loss
    return Result(
        loss=None if loss is None else float(executor.result(loss).reshape(-1)[0]),
        outputs=MappingProxyType(executor.outputs(copy=copy)),
        gradients=MappingProxyType(executor.gradients(copy=copy)),
        plan=executor.plan,
        seconds=seconds,
        measurement=measurement,
        device=executor.device.name,
    )


class Outlets:
    """The places of the results of one step, in the arena of an executor.

    Next values of parameters and of state are no results: `carry` puts those that a step could not
    leave where the next one reads them.
    """

    def __init__(self, executor: Executor) -> None:
        program = executor.program
        known = {*program.gradients.values(), *program.state.values()}
        outputs = {program.values[v].name: v for v in program.outputs if v not in known}
        loss = {} if program.loss is None else {program.values[program.loss].name: program.loss}
        self._executor = executor
        self._outputs = self._places(outputs)
        self._gradients = self._places(program.gradients)
        self._loss = next(iter(self._places(loss)), None)
        self._views = self._lasting(self._outputs), self._lasting(self._gradients)
        self._copyto = executor.device.xp.copyto
        self._moved, self._crossed = _moved(executor)

    def carry(self) -> None:
        """Copy the next values to the places of the current ones, unless they lie there."""
        kept = [(old, new.copy()) for old, new in self._crossed]
        for old, new in self._moved:
            self._copyto(old, new)
        for old, new in kept:
            self._copyto(old, new)

    def take(self, seconds: float, *, copy: bool) -> Result:
        """The results of the last step."""
        outputs, gradients = (None, None) if copy else self._views
        return Result(
            loss=None if self._loss is None else float(self._array(self._loss).item()),
            outputs=self._taken(self._outputs, copy=copy) if outputs is None else outputs,
            gradients=self._taken(self._gradients, copy=copy) if gradients is None else gradients,
            plan=self._executor.plan,
            seconds=seconds,
        )

    def _places(self, numbers: Mapping[str, int]) -> list[Place]:
        """Arrays on the host; the number of a value alone where its array has to be asked for."""
        executor = self._executor
        on_host = executor.device.xp is np
        known = [v for v in numbers.values() if executor.program.values[v].spec is not None]
        return [
            (name, executor.arrays[v] if on_host and v in known else None, v)
            for name, v in numbers.items()
        ]

    def _lasting(self, places: list[Place]) -> Arrays | None:
        """The arrays of all places, where each step leaves the same; None if one is asked for."""
        if any(array is None for _, array, _ in places):
            return None
        return self._taken(places, copy=False)

    def _taken(self, places: list[Place], *, copy: bool) -> Arrays:
        if copy:
            found = {
                name: self._executor.result(v) if array is None else array.copy()
                for name, array, v in places
            }
        else:
            found = {place[0]: self._array(place) for place in places}
        return MappingProxyType(found)

    def _array(self, place: Place) -> np.ndarray[Any, Any]:
        """Array of a place."""
        _, array, value = place
        return self._executor.result(value, copy=False) if array is None else array


Place = tuple[str, np.ndarray[Any, Any] | None, int]


Pairs = list[tuple[Any, Any]]


def _moved(executor: Executor) -> tuple[Pairs, Pairs]:
    """The places of old values whose next ones lie elsewhere, and of the next ones.

    Second come those whose next value lies in a place that is written over as well.
    """
    program, arrays = executor.program, executor.arrays
    pairs = {old: v for old, v in program.state.items() if program.values[v].alias != old}
    moved: Pairs = []
    crossed: Pairs = []
    for old, new in pairs.items():
        chosen = crossed if program.storage(new) in pairs else moved
        chosen.append((arrays[old], arrays[new]))
    return moved, crossed
