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
from gradtool.graph.families import FAMILIES, split_name
from gradtool.kernels.native import NATIVE, find
from gradtool.planning.no_recompute import no_recompute
from gradtool.program.flatten import flatten

for family in FAMILIES:
    if find_spec(f"operators.{family}"):
        import_module(f"operators.{family}")

KNOWN = {entry.op for entry in NATIVE.entries()}
CASES = [
    case
    for case in cases.CASES
    if any(op.startswith(split_name(case.op)[1]) for op in KNOWN)  # itself, or a gradient of it
]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)


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


def made(case):
    """The model of a case with its gradient, if it has one, and what it is fed."""
    with np.errstate(all="ignore"):
        return (differentiated if case.gradient else build)(case, np.float32)[:2]


@needs_library
@each_case
def test_results_are_those_of_numpy_also_over_inputs(case):
    model, feeds = made(case)
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
    ours.rewind()
    with np.errstate(all="ignore"):
        for index, step in enumerate(ours.program.steps):
            if step.is_native:
                check_overwriting(ours, step)
            ours.call(index)


def check_overwriting(executor, step):
    """A step gives the same bits where it writes over one of the inputs that plans let it."""
    values = executor.program.values
    found = find(*split_name(step.op), step.version)
    result = values[step.outputs[0]] if step.outputs[0] is not None else None
    slots = [
        slot
        for slot in step.may_inplace
        if result is not None
        and slot < len(step.inputs)
        and (over := step.inputs[slot]) is not None
        and values[over].kind != "host"
        and values[over].view is None
        and values[over].spec == result.spec
        and step.inputs.count(over) == 1
    ]
    for slot in slots:
        kept, over = (bits(executor, step, found, into) for into in (None, slot))
        assert kept == over, (step.op, slot)


def bits(executor, step, found, into):
    """What a step writes, its first output over the input `into` if one is given."""

    def copied(value):
        held = None if value is None else executor.value(value)
        return held if held is None else np.array(held, order="K")

    inputs, out = [copied(v) for v in step.inputs], [copied(v) for v in step.outputs]
    work = [np.full(spec.shape, np.nan, spec.dtype) for spec in step.workspace]
    for array in out:
        if array is not None:
            array.fill(0)
    if into is not None:
        out[0] = inputs[into]
    found.bind(*inputs, out=out, work=work, **step.attributes)()
    return [None if array is None else array.tobytes() for array in out]
