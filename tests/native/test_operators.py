"""Programs on native kernels against the same on numpy's: every case of the operator tests."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter

import cases
import numpy as np
import pytest
from checkers import build, differentiated
from conftest import sampled
from native_calls import Guarded, needs_library

from gradtool.errors import OpenSizes
from gradtool.exec import measure
from gradtool.exec.device import open_device
from gradtool.exec.executor import Executor
from gradtool.exec.parameters import parameters_of
from gradtool.graph.declarations import ask
from gradtool.graph.families import FAMILIES, split_name
from gradtool.graph.specs import Spec
from gradtool.ops.native import NATIVE, find
from gradtool.ops.shared.image_layouts import Laid
from gradtool.planning.no_recompute import no_recompute
from gradtool.program.declared import operand
from gradtool.program.flatten import flatten
from gradtool.program.native import _specs, natively, workspace

for family in FAMILIES:
    if find_spec(f"operators.{family}"):
        import_module(f"operators.{family}")

KNOWN = {entry.op for entry in NATIVE.entries()}
CASES = [
    case
    for case in cases.CASES
    if any(op.startswith(split_name(case.op)[1]) for op in KNOWN)  # itself, or a gradient of it
]
each_case = pytest.mark.parametrize("case", sampled(CASES, by=attrgetter("op")), ids=lambda c: c.id)


def executed(model, feeds, *, native):
    """The executor of a model that has run on `feeds`; None if nothing of it is native."""
    try:
        program = flatten(model)
        program = natively(program, grouped=False) if native else program
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
                check_layouts(ours, step)
                check_fewer_outputs(ours, step)
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


def check_layouts(executor, step):
    """A step gives the same where images lie otherwise, in a workspace of the bytes it asks for."""
    values, rng = executor.program.values, np.random.default_rng(0)
    found = find(*split_name(step.op), step.version)
    images = {v for v in (*step.reads, *step.writes) if is_image(values[v])}
    images -= {step.inputs[slot] for slot in found.rows_in}
    images -= {step.outputs[slot] for slot in found.rows_out}
    if found.layouts == "rows" or not images:
        return
    expected = executor_results(executor, step, found, frozenset())
    for _ in range(6):
        last = {v for v in sorted(images) if rng.integers(2)}
        if found.layouts == "channels":
            last = images if last else set()
        results = executor_results(executor, step, found, last)
        for array, exact in zip(results or (), expected, strict=True):
            if array is not None:
                np.testing.assert_allclose(array, exact, rtol=1e-4, atol=1e-5, err_msg=step.op)


def check_fewer_outputs(executor, step):
    """A step runs natively, and gives the same bits, whichever of its outputs a plan drops.

    Else what computes a part of it again would round otherwise, and images lie otherwise.
    """
    present = [slot for slot, value in enumerate(step.outputs) if value is not None]
    if len(present) < 2 or step.op.endswith("Update"):  # whose results all stay
        return
    kernel = find(*split_name(step.op), step.version)
    whole = bits(executor, step, kernel, None)
    for kept in ([slot] for slot in present):
        fewer = replace(
            step, outputs=tuple(v if i in kept else None for i, v in enumerate(step.outputs))
        )
        specs, out = _specs(executor.program, fewer)
        assert ask(kernel.fits, specs, out, step.attributes), (step.op, kept)
        fewer = replace(fewer, workspace=workspace(executor.program, fewer, kernel))
        found = bits(executor, fewer, kernel, None)
        assert [found[slot] for slot in kept] == [whole[slot] for slot in kept], (step.op, kept)


def is_image(value):
    return value.spec is not None and len(value.spec.shape) == 4 and value.kind != "host"


def executor_results(executor, step, found, last):
    """What a step writes where the values `last` lie channels last; None if it does not fit."""
    values, constants = executor.program.values, executor.program.constants

    def made(value):
        held = np.array(executor.value(value))
        if value in last:
            held = np.ascontiguousarray(held.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
        return held

    def spec(value, array):
        if values[value].kind == "host":
            return operand(values, constants, value, on_host=True)
        return (Spec if array.flags.c_contiguous else Laid)(array.shape, array.dtype)

    inputs, out = (
        [None if v is None else made(v) for v in vs] for vs in (step.inputs, step.outputs)
    )
    specs, wanted = (
        [None if v is None else spec(v, array) for v, array in zip(vs, arrays, strict=True)]
        for vs, arrays in ((step.inputs, inputs), (step.outputs, out))
    )
    if not ask(found.fits, specs, wanted, step.attributes):
        return None
    rooms = [Guarded(s.shape) for s in ask(found.work, specs, wanted, step.attributes)]
    for array in out:
        if array is not None:
            array.fill(1)
    found.bind(*inputs, out=out, work=[r.array for r in rooms], **step.attributes)()
    for each in rooms:
        each.check()
    return out
