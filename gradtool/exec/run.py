"""One step of a training graph on a device: bind sizes, flatten, plan, execute, measure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool import io, shapes
from gradtool.errors import GradtoolError, MissingData
from gradtool.exec import feeds
from gradtool.exec import measure as measuring
from gradtool.exec.device import open_device
from gradtool.exec.executor import Executor
from gradtool.flatten import flatten
from gradtool.planning.keep import keep
from gradtool.planning.plan import Plan

Arrays = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Result:
    """What a step computed; `seconds` is the median of the repeated steps.

    Arrays are copies, or with `copy=False` views of the arena, which lives as long as one of them.

    `ort_peak_bytes` is what stock onnxruntime took beside inputs and weights, where that was run
    and could be measured.
    """

    loss: float | None
    outputs: Arrays
    gradients: Arrays
    plan: Plan | None
    seconds: float
    measurement: measuring.Measurement | None = None
    ort_peak_bytes: int | None = None


def bound(model: ir.Model, dims: Mapping[str, int]) -> ir.Model:
    """A copy of a model with sizes given to symbols, its shapes inferred again."""
    from gradtool.functions.inference import register_shapes
    from gradtool.io.dims import bind

    register_shapes()
    copy = model.clone()
    bind(copy, dims, {}, None)
    shapes.infer(copy)
    return copy


def planned(model: ir.Model, dims: Mapping[str, int]) -> Plan:
    """The plan that keeps everything, for the given sizes."""
    from gradtool.functions.inference import register_shapes

    register_shapes()
    return keep(flatten(bound(model, dims) if dims else model, dims=dims))


def parameters_of(model: ir.Model) -> Any:
    """A function from the name of an initializer to its array; raises MissingData."""

    def look_up(name: str) -> np.ndarray[Any, Any]:
        tensor = model.graph.initializers[name].const_value
        if tensor is None:
            raise MissingData(f"initializer {name!r} has no data; run needs the weights")
        return io.array(tensor)

    return look_up


def execute(
    model: ir.Model,
    arrays: Arrays,
    *,
    device: str = "cpu",
    repeat: int = 1,
    measure: bool = False,
    check_nan: bool = False,
    check_arena: bool = False,
    copy: bool = True,
    release: bool = False,
) -> Result:
    """Run a training graph on our executor. `arrays` holds every input, by name.

    With `release`, it is emptied as the inputs go into the arena.

    Raises:
        MissingData: an input or a weight is absent.
        GradtoolError: `check_nan` found a NaN; the node is named.
    """
    opened = open_device(device)
    plan = planned(model, feeds.sizes(model, arrays))
    executor = Executor(plan, opened, parameters_of(model))
    given = feeds.require(model, arrays, "inputs")
    if release and isinstance(arrays, dict):
        arrays.clear()
    for name in list(given):
        executor.set_input(name, given.pop(name))
    measurement = None
    with np.errstate(all="ignore"):
        if check_nan:
            found = measuring.first_nan(executor)
            if found is not None:
                raise GradtoolError(f"{found[1]} {found[0]!r} is the first node with a NaN")
        if check_arena:
            measuring.check_arena(executor)
        if measure:
            measurement = measuring.measure(executor, repeat, copy=copy)
        seconds = measuring.timed(executor, repeat)
    return _result(executor, float(np.median(seconds)), measurement, copy=copy)


def _result(
    executor: Executor,
    seconds: float,
    measurement: measuring.Measurement | None,
    *,
    copy: bool,
) -> Result:
    program = executor.program
    loss = None if program.loss is None else float(executor.result(program.loss).reshape(-1)[0])
    return Result(
        loss=loss,
        outputs=MappingProxyType(executor.outputs(copy=copy)),
        gradients=MappingProxyType(executor.gradients(copy=copy)),
        plan=executor.plan,
        seconds=seconds,
        measurement=measurement,
    )
