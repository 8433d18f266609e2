"""Programs on native kernels against the same on numpy's: every case of the operator tests."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import cases
import numpy as np
import pytest
from checkers import build, differentiated
from native_calls import needs_library

from gradtool.errors import OpenSizes
from gradtool.exec import measure
from gradtool.exec.device import open_device
from gradtool.exec.executor import Executor
from gradtool.exec.parameters import parameters_of
from gradtool.graph.families import FAMILIES
from gradtool.planning.no_recompute import no_recompute
from gradtool.program.flatten import flatten

for family in FAMILIES:
    if find_spec(f"operators.{family}"):
        import_module(f"operators.{family}")


def executed(model, feeds, *, native):
    """The executor of a model that has run on `feeds`; None if nothing of it is native."""
    try:
        program = flatten(model, native=native)
    except OpenSizes as open_sizes:
        pytest.skip(str(open_sizes))
    if native and not any(step.is_native for step in program.steps):
        return None
    executor = Executor(no_recompute(program), open_device("cpu"), parameters_of(model))
    for name, array in feeds.items():
        executor.set_input(name, array)
    with np.errstate(all="ignore"):
        executor.step()
    return executor


@needs_library
@pytest.mark.parametrize("case", cases.CASES, ids=lambda c: c.id)
def test_results_and_gradients_are_those_of_numpy(case):
    with np.errstate(all="ignore"):
        made = differentiated if case.gradient else build
        model, feeds = made(case, np.float32)[:2]
        ours = executed(model, feeds, native=True)
    if ours is None:
        pytest.skip("nothing of it is native")
    theirs = executed(model, feeds, native=False).outputs()
    for name, found in ours.outputs().items():
        if found.dtype.kind in "OUS":
            np.testing.assert_array_equal(found, theirs[name], err_msg=name)
        else:
            np.testing.assert_allclose(found, theirs[name], rtol=1e-4, atol=1e-5, err_msg=name)
    measure.check_arena(ours)
