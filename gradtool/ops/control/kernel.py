"""Control flow: If, Loop and Scan.

The program of a branch or body is an attribute; its captured values are further inputs, those of
`else_branch` before those of `then_branch`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.ops.control.programs import Body, Bound, aliases, bound, endless, plan_of
from gradtool.ops.kernels import kernel
from gradtool.ops.shared import runtime_limits as allowance
from gradtool.ops.shared.types import Array, Arrays

# ------------------------------------------------------------------------------ If


def _if_work(*, else_branch: Body, then_branch: Body) -> list[Spec]:
    size = max(plan_of(else_branch).peak, plan_of(then_branch).peak)
    return [Spec((size,), np.dtype(np.uint8))]


def _if_bytes(*, else_branch: Body, then_branch: Body) -> int:
    return max(plan_of(else_branch).scratch, plan_of(then_branch).scratch)


def _chosen(
    condition: Array, captured: Sequence[Array | Arrays], else_branch: Body, then_branch: Body
) -> tuple[Body, Any]:
    """The branch taken, and its captured values."""
    cut = len(else_branch.inputs)
    if bool(condition.reshape(-1)[0]):
        return then_branch, captured[cut:]
    return else_branch, captured[:cut]


def if_dynamic(
    xp: Any, condition: Array, *captured: Array, else_branch: Body, then_branch: Body
) -> tuple[Array | list[Array], ...]:
    """The outputs of the branch taken."""
    branch, given = _chosen(condition, captured, else_branch, then_branch)
    inner = bound(xp, branch, given)
    inner.run()
    return tuple(inner.result(index) for index in range(len(branch.outputs)))


@kernel("If", host=(0,), work=_if_work, temporaries=_if_bytes, dynamic=if_dynamic)
def if_(
    xp: Any, condition: Array, *captured: Array,
    out: Arrays, work: Arrays, else_branch: Body, then_branch: Body,
) -> None:  # fmt: skip
    """The outputs of the branch taken."""
    branch, given = _chosen(condition, captured, else_branch, then_branch)
    inner = bound(xp, branch, given, work[0][: plan_of(branch).peak])
    inner.run()
    for index, target in enumerate(out):
        if target is not None:
            xp.copyto(target, inner.output(index))


# ---------------------------------------------------------------------------- Loop


def _turns(count: Array | None, condition: Array) -> Iterator[int]:
    """The numbers of the turns that a Loop takes at most, counted as they are taken."""
    if condition is not None and not bool(condition.reshape(-1)[0]):
        return
    allowed = allowance.current()
    most = itertools.count() if count is None else range(max(int(count.reshape(-1)[0]), 0))
    for turn in most:
        allowed.turn()
        yield turn


def _turn_work(body: Body, states: int, outputs: int, inputs: int) -> list[Spec]:
    """The arena of a turn, and room for states that alias each other.

    There are so many states, those of the body from these positions on.
    """
    room: list[Spec] = []
    for k in range(states):
        spec = body.values[body.inputs[inputs + k]].spec
        if spec is None or not aliases(body, outputs + k, inputs + k):
            spec = Spec((0,), np.dtype(np.uint8))
        room.append(spec)
    return [*room, Spec((plan_of(body).peak,), np.dtype(np.uint8))]


def _loop_work(*, body: Body) -> list[Spec]:
    return _turn_work(body, body.formal - 2, 1, 2)


def _body_bytes(*, body: Body) -> int:
    return plan_of(body).scratch


def loop_dynamic(
    xp: Any, count: Array | None, condition: Array, *inputs: Array, body: Body
) -> tuple[Array, ...]:
    """The states after the last turn, and the rows of all turns, stacked."""
    states = body.formal - 2
    inner = bound(xp, body, inputs[states:])
    carried = list(inputs[:states])
    rows: list[list[Array]] = [[] for _ in body.outputs[states + 1 :]]
    inner.load(1, True)
    for turn in _turns(count, condition):
        inner.load(0, turn)
        for index, value in enumerate(carried):
            inner.load(2 + index, value)
        inner.run()
        carried = [inner.result(1 + index) for index in range(states)]
        _add_turn(inner, rows, 1 + states)
        if not endless(body) and not bool(inner.output(0)):
            break
    return *carried, *_stacked(xp, inner, rows, 1 + states)


def _add_turn(inner: Bound, rows: Sequence[list[Array]], first: int) -> None:
    """Keep the rows of a turn."""
    for index, row in enumerate(rows):
        row.append(inner.result(first + index))
        allowance.current().take(row[-1].nbytes)


def _stacked(xp: Any, inner: Bound, rows: Sequence[Arrays], first: int) -> list[Array]:
    """Rows of all turns, stacked into one array per output."""
    allowed = allowance.current()
    kept = sum(item.nbytes for row in rows for item in row)
    allowed.require(kept)
    allowed.take(-kept)
    return [
        xp.stack(row) if row else inner.nothing(first + index) for index, row in enumerate(rows)
    ]


@kernel("Loop", host=(0, 1), work=_loop_work, temporaries=_body_bytes, dynamic=loop_dynamic)
def loop(
    xp: Any, count: Array, condition: Array, *inputs: Array, out: Arrays, work: Arrays, body: Body
) -> None:
    """The states after the last turn, and the rows of all turns, stacked."""
    states = body.formal - 2
    *kept, arena = work
    inner = bound(xp, body, inputs[states:], arena)
    inner.load(1, True)
    for index in range(states):
        inner.load(2 + index, inputs[index])
    for turn in _turns(count, condition):
        inner.load(0, turn)
        inner.run()
        for index, track in enumerate(out[states:]):
            if track is not None:
                xp.copyto(track[turn, ...], inner.output(1 + states + index))
        stop = not endless(body) and not bool(inner.output(0))
        inner.carry(states, 1, 2, kept)
        if stop:
            break
    for index, target in enumerate(out[:states]):
        if target is not None:
            xp.copyto(target, inner.input(2 + index))


# ---------------------------------------------------------------------------- Scan


def _scan_work(*, body: Body, num_scan_inputs: int) -> list[Spec]:
    return _turn_work(body, body.formal - num_scan_inputs, 0, 0)


def scan_dynamic(
    xp: Any, *inputs: Array, body: Body, num_scan_inputs: int,
    scan_input_axes: Sequence[int] | None = None,
    scan_input_directions: Sequence[int] | None = None,
    scan_output_axes: Sequence[int] | None = None,
    scan_output_directions: Sequence[int] | None = None,
) -> tuple[Array, ...]:  # fmt: skip
    """The states after the last turn, and the rows of all turns, stacked."""
    states = body.formal - num_scan_inputs
    inner = bound(xp, body, inputs[body.formal :])
    read = _tracks(inputs[states : body.formal], scan_input_axes, scan_input_directions)
    carried = list(inputs[:states])
    rows: list[list[Array]] = [[] for _ in body.outputs[states:]]
    for slices in zip(*read, strict=True):
        for index, value in enumerate((*carried, *slices)):
            inner.load(index, value)
        inner.run()
        carried = [inner.result(index) for index in range(states)]
        _add_turn(inner, rows, states)
    made = _stacked(xp, inner, rows, states)
    for index, track in enumerate(made):
        turned = track[::-1] if scan_output_directions and scan_output_directions[index] else track
        axis = scan_output_axes[index] if scan_output_axes else 0
        made[index] = xp.ascontiguousarray(xp.moveaxis(turned, 0, axis))
    return *carried, *made


@kernel("Scan", work=_scan_work, temporaries=_body_bytes, dynamic=scan_dynamic)
def scan(
    xp: Any, *inputs: Array, out: Arrays, work: Arrays, body: Body, num_scan_inputs: int,
    scan_input_axes: Sequence[int] | None = None,
    scan_input_directions: Sequence[int] | None = None,
    scan_output_axes: Sequence[int] | None = None,
    scan_output_directions: Sequence[int] | None = None,
) -> None:  # fmt: skip
    """The states after the last turn, and the rows of all turns, stacked.

    Inputs are the first states, the arrays that are read one slice a turn, and captured values.
    """
    states = body.formal - num_scan_inputs
    *kept, arena = work
    inner = bound(xp, body, inputs[body.formal :], arena)
    read = _tracks(inputs[states : body.formal], scan_input_axes, scan_input_directions)
    made = _tracks(out[states:], scan_output_axes, scan_output_directions)
    for index in range(states):
        inner.load(index, inputs[index])
    for turn in range(len(read[0])):
        for index, track in enumerate(read):
            inner.load(states + index, track[turn, ...])
        inner.run()
        for index, track in enumerate(made):
            if track is not None:
                xp.copyto(track[turn, ...], inner.output(states + index))
        inner.carry(states, 0, 0, kept)
    for index in range(states):
        if out[index] is not None:
            xp.copyto(out[index], inner.input(index))


def _tracks(
    arrays: Arrays, axes: Sequence[int] | None, directions: Sequence[int] | None
) -> list[Array]:
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


def _first(array: Array, axis: int) -> Array:
    """A view of an array with one axis first."""
    order = list(range(array.ndim))
    order.insert(0, order.pop(axis))
    return array.transpose(order)
