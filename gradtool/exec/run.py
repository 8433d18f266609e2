"""One step of a training graph on a device: bind sizes, flatten, plan, execute, measure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import onnx_ir as ir

from gradtool.errors import DeviceError, UsageError
from gradtool.exec import feeds
from gradtool.exec import measure as measuring
from gradtool.exec.binding import Bindings
from gradtool.exec.device import Device, open_device
from gradtool.exec.results import Arrays, Result, result_of
from gradtool.exec.shared_arena import Store
from gradtool.exec.watch import Watch
from gradtool.graph.training_info import TrainingInfo
from gradtool.operators.kernel_sets import AUTO, LIBRARY, NONE, Asked, Kernels
from gradtool.planning.no_recompute import no_recompute
from gradtool.planning.plan import Plan
from gradtool.program.bind_dims import bound
from gradtool.program.flatten import flatten
from gradtool.shapes.inference import register_shapes
from gradtool.workloads.names import chosen
from gradtool.workloads.run_options import RunOptions


def planned(model: ir.Model, dims: Mapping[str, int], kernels: Asked = "numpy") -> Plan:
    """The plan that keeps everything, for the given sizes."""
    return sized_and_planned(model, dims, kernels=kernels)[1]


def sized_and_planned(
    model: ir.Model, dims: Mapping[str, int], name: str = "keep", kernels: Asked = "numpy"
) -> tuple[ir.Model, Plan]:
    """A model with sizes given to its symbols, and the plan of it that keeps everything.

    The plan is for kernels of numpy or CuPy, or of the native library where they fit.
    """
    register_shapes()
    sized = bound(model, dims) if dims else model
    return sized, no_recompute(flatten(sized, dims=dims, kernels=planned_for(model, kernels)), name)


def planned_for(model: ir.Model, asked: Asked, device: str = "cpu") -> Kernels:
    """The kernels of a run; `auto` takes those of the plan in a model where they are available."""
    if asked != AUTO or device != "cpu":
        return chosen(asked, device)
    carried = (TrainingInfo.of(model).plan or {}).get("kernels")
    if carried == "numpy" or (carried in LIBRARY and chosen(AUTO) in LIBRARY):
        return cast("Kernels", carried)
    return chosen(asked)


def home(kernels: Kernels) -> str:
    """The device that kernels run on."""
    return "cuda" if kernels == "cupy" else "cpu"


def kernels_on(device: str, kernels: Kernels) -> Kernels:
    """The kernels on a device for others asked for: numpy's are CuPy's on CUDA."""
    return "cupy" if kernels == "numpy" and device != "cpu" else kernels


def require(asked: Asked, device: Device) -> Kernels:
    """The kernels to run on a device (`kernels_on`), if they can be called.

    Raises:
        DeviceError: native kernels cannot be called there, or CuPy's are not there.
        UsageError: they are those of another runtime.
    """
    kernels, on_cpu = chosen(asked, device.name), device.xp is np
    if kernels == NONE:
        raise UsageError("a step needs kernels: none are planned for other runtimes alone")
    if kernels in LIBRARY and not on_cpu:
        raise DeviceError(f"native kernels run on the CPU, not on {device.name}")
    if kernels == "cupy" and on_cpu:
        raise DeviceError(f"CuPy's kernels run on a CUDA device, not on {device.name}")
    if kernels in LIBRARY:
        from gradtool.native import library

        found, remark = library.status()
        if found is None:
            raise DeviceError(f"no native kernels: {remark}")
    return kernels_on(device.name, kernels)


def execute(
    model: ir.Model,
    arrays: Arrays,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    *,
    release: bool = False,
) -> Result:
    """Run a training graph on our executor. `arrays` holds every input, by name.

    With `release`, it is emptied as the inputs go into the arena.  On a CUDA device a step is
    planned for CuPy's kernels.

    Raises:
        MissingData: an input or a weight is absent.
        DeviceError: the native library is asked for and cannot be called here.
        GradtoolError: `check_nan` found a NaN; the node is named.
    """
    opened = open_device(options.device)
    kernels = require(planned_for(model, options.kernels, opened.name), opened)
    sized, plan = sized_and_planned(model, feeds.sizes(model, arrays), kernels=kernels)
    binding = Bindings(Store(opened)).add(plan, sized)
    executor = binding.enter()
    given = feeds.require(model, arrays, "inputs")
    if release and isinstance(arrays, dict):
        arrays.clear()
    for name in list(given):
        executor.set_input(name, given.pop(name))
    measurement = None
    with np.errstate(all="ignore"):
        if options.check_nan:
            watch = Watch(executor)
            watch.find_nan(1)
            watch.run()
            executor.rewind()
        if options.check_arena:
            measuring.check_arena(executor)
        if options.measure:
            measurement = measuring.measure(executor, options.repeat, copy=options.copy)
        seconds = measuring.timed(executor, options.repeat)
    return result_of(executor, float(np.median(seconds)), measurement, copy=options.copy)
