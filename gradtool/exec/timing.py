"""The seconds that each node of a training step takes, measured.

`at_random` plays the role `timing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from gradtool.exec import inputs as sources
from gradtool.exec.device import open_device
from gradtool.exec.executor import Executor
from gradtool.exec.parameters import parameters_of
from gradtool.exec.run import home, require
from gradtool.exec.step_costs import warm_seconds
from gradtool.operators.kernel_sets import AUTO, LIBRARY, NONE, Kernels
from gradtool.planning.no_recompute import no_recompute
from gradtool.program.native import natively
from gradtool.program.profile import REPEATS, Profile, Timed
from gradtool.workloads.names import chosen
from gradtool.workloads.workload import Workload, sized


def profile(
    work: Workload,
    arrays: Mapping[str, np.ndarray[Any, Any]],
    repeats: int = REPEATS,
    kernels: Kernels = "numpy",
    device: str | None = None,
) -> Profile:
    """Time each node of a training graph, everything kept, once the machine is warm.

    That is on `device`: if it is not given, kernels of CuPy run on the first CUDA device, others
    on the CPU.

    Raises:
        MissingData: a weight or an input is absent.
        DeviceError: there is no such device.
    """
    model = sized(work.model, work.dims)
    apart = work.apart
    if kernels in LIBRARY:
        apart = natively(apart, grouped=False, exact=kernels == "exact")
    kept = no_recompute(apart)
    executor = Executor(kept, open_device(device or home(kernels)), parameters_of(model))
    for name, array in arrays.items():
        executor.set_input(name, array)
    taken = warm_seconds(executor, repeats)
    nodes = {
        step.name: Timed(step.op, seconds) for step, seconds in zip(apart.steps, taken, strict=True)
    }
    return Profile(MappingProxyType(nodes), max(repeats, 1), kernels)


def at_random(work: Workload, repeats: int = REPEATS) -> Profile:
    """Time each node on random inputs, by the kernels of the plan; by `auto` for other runtimes.

    Raises:
        MissingData: a weight is absent.
        DeviceError: those are native, and cannot be called here.
    """
    kernels = chosen(AUTO) if work.kernels == NONE else work.kernels
    require(kernels, open_device(home(kernels)))
    model = sized(work.model, work.dims)
    return profile(work, sources.random(model, 0), repeats, kernels)
