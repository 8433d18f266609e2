"""Control flow: Scan."""

from __future__ import annotations

import numpy as np

from gradtool.errors import UsageError
from gradtool.exec.kernel import kernel
from gradtool.exec.kernels._subgraph import Body, plan_of
from gradtool.program import Spec


def _states(inputs, body) -> int:
    """The number of states: the first inputs, which the body sees whole."""
    for index, (value, number) in enumerate(zip(inputs, body.inputs, strict=True)):
        inner = body.values[number].spec
        if value is None or inner is None:
            raise UsageError("Scan needs sizes that don't depend on data; try --engine ort")
        if len(value.shape) != len(inner.shape):
            return index
    return len(inputs)


def _scan_work(*inputs, out, body, num_scan_inputs, **attributes):
    states = _states(inputs, body)
    plan = plan_of(body, states + num_scan_inputs)
    kept = [body.values[v].spec for v in body.outputs[:states]]
    return [Spec((plan.peak,), np.dtype(np.uint8)), *kept]


def _scan_bytes(*inputs, out, body, num_scan_inputs, **attributes):
    return plan_of(body, _states(inputs, body) + num_scan_inputs).adapted


@kernel("Scan", work=_scan_work, temporaries=_scan_bytes)
def scan(
    xp, *inputs, out, work, body, num_scan_inputs, scan_input_axes=None, scan_input_directions=None,
    scan_output_axes=None, scan_output_directions=None,
):  # fmt: skip
    """The states after the last turn, and what the turns gave, stacked.

    Inputs are the first states, the arrays that are read one slice a turn, and captured values.
    """
    states, count = _states(inputs, body), num_scan_inputs
    captured = inputs[states + count :]
    arena, *kept = work
    inner = Body(xp, body, states + count, captured, arena)
    read = _tracks(inputs[states : states + count], scan_input_axes, scan_input_directions)
    made = _tracks(out[states:], scan_output_axes, scan_output_directions)
    for index in range(states):
        xp.copyto(inner.input(index), inputs[index])
    for turn in range(len(read[0])):
        for index, track in enumerate(read):
            xp.copyto(inner.input(states + index), track[turn, ...])
        inner.run()
        for index, track in enumerate(made):
            if track is not None:
                xp.copyto(track[turn, ...], inner.output(states + index))
        crossed = [index for index in range(states) if inner.aliases(index, index)]
        for index in crossed:
            xp.copyto(kept[index], inner.output(index))
        for index in range(states):
            source = kept[index] if index in crossed else inner.output(index)
            xp.copyto(inner.input(index), source)
    for index in range(states):
        if out[index] is not None:
            xp.copyto(out[index], inner.input(index))


def _tracks(arrays, axes, directions):
    """The arrays with the scanned axis first, in the order in which they are scanned."""
    seen = []
    for index, array in enumerate(arrays):
        if array is not None:
            axis = axes[index] if axes else 0
            array = array if axis == 0 else _first(array, axis)  # noqa: PLW2901
            if directions and directions[index]:
                array = array[::-1]  # noqa: PLW2901
        seen.append(array)
    return seen


def _first(array, axis):
    order = list(range(array.ndim))
    order.insert(0, order.pop(axis))
    return array.transpose(order)
