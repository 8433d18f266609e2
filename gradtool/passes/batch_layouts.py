"""The batch axis of values laid out anew, picked from, or given to a body."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.graph import walk
from gradtool.passes.batch_index import picks_own
from gradtool.passes.batch_rules import TABLE, linear, only_first, rank_of, rows_of, rule_for
from gradtool.passes.batch_states import (
    FIXED,
    Batch,
    Fixed,
    MixesError,
    Rows,
    Rule,
    State,
    Total,
    is_standard,
)  # fmt: skip

MOST_TURNS = 8  # of a body, until its carried states settle


def _sums(batch: Batch, node: ir.Node, states: list[State]) -> State | None:
    """The sum over examples in another layout; None if there is none."""
    if not any(isinstance(s, Total) for s in states):
        return None
    return linear(batch, node, states)


@rule_for("Reshape", "Flatten")
def reshape(batch: Batch, node: ir.Node, states: list[State]) -> State:
    """Rows whose examples keep the number of elements before and behind them."""
    if (total := _sums(batch, node, states)) is not None:
        return total
    state, value = only_first(states), node.inputs[0]
    assert value is not None  # noqa: S101 - it has a state
    old, new, count = batch.dims(value), batch.dims(node.outputs[0]), batch.count
    outer = math.prod(old[: state.axis]) * state.outer
    inner = math.prod(old[state.axis + 1 :]) * state.inner
    before, found = 1, []
    for axis, size in enumerate(new):
        rest = math.prod(new[axis + 1 :])
        if outer % before == 0 and inner % rest == 0:
            o, i = outer // before, inner // rest
            if o * count * i == size:
                last = axis == len(new) - 1
                found.append(replace(state, axis=axis, outer=o, inner=i, own=state.own and (
                    not last or i == 1 or state.stride > 0)))  # fmt: skip
        before *= size
    if not found:
        raise MixesError("it cuts the axis of examples in other pieces")
    return batch.choose(node, found)


@rule_for("Transpose")
def transpose(batch: Batch, node: ir.Node, states: list[State]) -> State:
    """Rows along the image of their axis."""
    if (total := _sums(batch, node, states)) is not None:
        return total
    state, rank = only_first(states), rank_of(batch, node.inputs[0])
    perm = node.attributes.get_ints("perm", list(reversed(range(rank))))
    return replace(state, axis=list(perm).index(state.axis))


@rule_for("Squeeze", "Unsqueeze")
def squeeze(batch: Batch, node: ir.Node, states: list[State]) -> State:
    """Rows along the image of their axis."""
    if (total := _sums(batch, node, states)) is not None:
        return total
    state = only_first(states)
    grows = node.op_type == "Unsqueeze"
    rank = rank_of(batch, node.outputs[0] if grows else node.inputs[0])
    given = batch.constant(node, 1)
    if given is None:
        sizes = batch.dims(node.inputs[0])  # type: ignore[arg-type]
        axes = [i for i, size in enumerate(sizes) if size == 1]
    else:
        axes = [int(a) % rank for a in given.reshape(-1)]
    if grows:
        return replace(state, axis=[i for i in range(rank) if i not in axes][state.axis])
    if state.axis in axes:
        raise MixesError("it drops the axis of examples")
    return replace(state, axis=state.axis - sum(a < state.axis for a in axes))


@rule_for("Expand", "Tile", "Pad", "Resize", "CenterCropPad", "Slice", "Split", "Trilu", "Det")
def sizes(batch: Batch, node: ir.Node, states: list[State]) -> State:
    """Rows along the same axis, whose size stays as it is."""
    if (total := _sums(batch, node, states)) is not None:
        return total
    state, value = only_first(states), node.inputs[0]
    assert value is not None  # noqa: S101 - it has a state
    rank = rank_of(batch, value)
    axis = state.axis + (rank_of(batch, node.outputs[0]) - rank if node.op_type == "Expand" else 0)
    if node.op_type in ("Trilu", "Det") and axis >= rank - 2:
        raise MixesError("it tells the places of examples apart")
    if any(batch.dims(out)[axis] != batch.dims(value)[state.axis] for out in node.outputs):
        raise MixesError("it changes the number of examples")
    if node.op_type == "Slice" and _turns(batch, node, rank, axis):
        raise MixesError("it turns the order of examples")
    return replace(state, axis=axis)


def _turns(batch: Batch, node: ir.Node, rank: int, axis: int) -> bool:
    """Whether a Slice takes an axis in steps other than 1."""
    steps, given = batch.constant(node, 4), batch.constant(node, 3)
    if steps is None:
        return len(node.inputs) > 4 and node.inputs[4] is not None
    axes = range(len(steps)) if given is None else [int(a) % rank for a in given]
    return any(a == axis and step != 1 for a, step in zip(axes, steps, strict=True))


@rule_for("Concat")
def concat(batch: Batch, node: ir.Node, states: list[State]) -> State:
    """Rows of all, put together along another axis."""
    if (total := _sums(batch, node, states)) is not None:
        return total
    found = [s for s in states if isinstance(s, Rows)]
    rank = rank_of(batch, node.outputs[0])
    axis = node.attributes.get_int("axis", 0) % rank
    splits = {(s.axis, s.outer, s.inner) for s in found if not s.even}
    if len(splits) > 1 or any(s.axis == axis for s in found):
        raise MixesError("it puts examples together")
    for value, state in zip(node.inputs, states, strict=True):
        if isinstance(state, Fixed) and batch.dims(value)[found[0].axis] != batch.dims(  # type: ignore[arg-type]
            node.outputs[0])[found[0].axis]:  # fmt: skip
            raise MixesError("it puts examples and others together")
    if _numbers_first(batch, node) and axis == rank - 1:
        return replace(found[0], own=True)
    if any(s.own for s in found):
        first = states[0]
        if axis != rank - 1 or not (isinstance(first, Rows) and first.own and not first.stride):
            raise MixesError("it computes with the numbers of examples")
        return states[0]
    return next((s for s in found if not s.even), found[0])


def _numbers_first(batch: Batch, node: ir.Node) -> bool:
    """Whether a model of fixed batch puts the numbers of examples before their picks."""
    first = batch.constant(node, 0) if batch.symbol is None else None
    return first is not None and np.array_equal(first, np.arange(batch.count)[:, None])


# ----------------------------------------------------------------------------------- picking


@rule_for("Gather")
def gather(batch: Batch, node: ir.Node, states: list[State]) -> State:
    """Rows that each pick from a fixed operand, or all give the same pick."""
    data, indices = states
    axis = node.attributes.get_int("axis", 0) % rank_of(batch, node.inputs[0])
    if isinstance(data, Fixed) and isinstance(indices, Rows) and not indices.own:
        return replace(indices, axis=axis + indices.axis)
    if picks_own(data, indices, axis):
        return Rows(rows_of(indices).axis)
    if isinstance(data, Rows) and isinstance(indices, Fixed) and data.axis != axis:
        more = rank_of(batch, node.inputs[1]) - 1
        return replace(data, axis=data.axis + (more if data.axis > axis else 0))
    if isinstance(data, Total) and isinstance(indices, Fixed):
        return data
    if isinstance(data, Rows) and isinstance(indices, Fixed) and data.outer == 1:
        known = batch.constant(node, 1) if batch.symbol is None else None
        if known is not None and _is_by_example(batch, known // data.inner):
            return Rows(axis)
    raise MixesError("it picks among examples")


def _is_by_example(batch: Batch, numbers: np.ndarray[Any, Any]) -> bool:
    """Whether known numbers of examples are, along their first axis, each its own."""
    if numbers.ndim < 1 or numbers.shape[0] != batch.count:
        return False
    own = np.arange(batch.count).reshape(-1, *[1] * (numbers.ndim - 1))
    return bool((numbers == own).all())


@rule_for("GatherElements", "ScatterElements")
def elements(batch: Batch, node: ir.Node, states: list[State]) -> State:
    """Rows that each pick of their own, along another axis."""
    axis = node.attributes.get_int("axis", 0) % rank_of(batch, node.inputs[0])
    found = [s for s in states if isinstance(s, Rows)]
    alike = len({(s.axis, s.outer, s.inner) for s in found if not s.even}) <= 1
    if (
        not found
        or not alike
        or any(s.axis == axis or s.own for s in found)
        or any(isinstance(s, Total) for s in states)
    ):
        raise MixesError("it picks among examples")
    return next((s for s in found if not s.even), found[0])


@rule_for("GatherND")
def gather_nd(batch: Batch, node: ir.Node, states: list[State]) -> State:
    """Rows that each pick of their own: by a leading axis, or by their own number."""
    data, indices = states
    batches = node.attributes.get_int("batch_dims", 0)
    last = rank_of(batch, node.inputs[1]) - 1
    if isinstance(data, Rows) and isinstance(indices, Rows):
        by_number = indices.own and not indices.stride and data.axis == 0 and not batches
        by_number = by_number and indices.axis < last
        by_axis = not indices.own and data.axis == indices.axis < batches
        if (by_number or by_axis) and (data.outer, data.inner) == (indices.outer, indices.inner):
            return replace(indices, own=False)
    if isinstance(data, Fixed) and isinstance(indices, Rows):
        by_value = not indices.own and not batches
        if by_value and indices.axis < last:
            return indices
    depth = batches + batch.dims(node.inputs[1])[-1]  # type: ignore[arg-type]
    if isinstance(data, Rows) and isinstance(indices, Fixed):
        known = batch.constant(node, 1) if batch.symbol is None else None
        if data.axis >= depth:
            return replace(data, axis=data.axis - depth + last)
        if data == Rows(0) and known is not None and _is_by_example(batch, known[..., 0]):
            return data
    raise MixesError("it picks among examples")


@rule_for("OneHot")
def one_hot(batch: Batch, node: ir.Node, states: list[State]) -> State:
    """Rows along their axis, or the one behind it."""
    state = only_first(states)
    axis = node.attributes.get_int("axis", -1) % rank_of(batch, node.outputs[0])
    if state.own:
        raise MixesError("it computes with the numbers of examples")
    return replace(state, axis=state.axis + (axis <= state.axis))


@rule_for("Dropout", "Bernoulli", "RandomNormalLike", "RandomUniformLike")
def drawn(batch: Batch, node: ir.Node, states: list[State]) -> State:
    """Rows of random numbers drawn for each."""
    return replace(only_first(states), own=False)


# ------------------------------------------------------------------------------------ bodies


@rule_for("RNN", "LSTM", "GRU")
def recurrent(batch: Batch, node: ir.Node, states: list[State]) -> list[State]:
    """Rows along the axis of examples; weights are the same for all."""
    layout = node.attributes.get_int("layout", 0)
    places = {0: 0 if layout else 1, 4: 0, 5: 0 if layout else 1, 6: 0 if layout else 1}
    for slot, state in enumerate(states):
        if not isinstance(state, Fixed) and rows_of(state).axis != places.get(slot, -1):
            raise MixesError("it has examples along another axis")
    state = rows_of(states[0])
    made = (replace(state, axis=0 if layout else 2), *[replace(state, axis=0 if layout else 1)] * 2)
    return list(made[: len(node.outputs)])


@rule_for("If")
def branches(batch: Batch, node: ir.Node, states: list[State]) -> list[State]:
    """The common states of both branches; a condition decided by examples would be one for all."""
    if not isinstance(states[0], Fixed):
        raise MixesError("examples decide its branch")
    first, second = (batch.follow(body, []) for body in walk.subgraphs(node))
    return [_either(a, b) for a, b in zip(first, second, strict=True)]


def _either(a: State, b: State) -> State:
    if a == b:
        return a
    if isinstance(a, Rows) and isinstance(b, Rows) and a.axis == b.axis and (a.even or b.even):
        return b if a.even else a
    raise MixesError("its branches treat examples differently")


@rule_for("Scan")
def scan(batch: Batch, node: ir.Node, states: list[State]) -> list[State]:
    """Turns along another axis than the batch; carried states settle."""
    (body,) = walk.subgraphs(node)
    count = node.attributes.get_int("num_scan_inputs", 0)
    held = len(states) - count
    along = list(node.attributes.get_ints("scan_input_axes", [0] * count))
    turns = [
        _without(s, a % rank_of(batch, v))
        for s, a, v in zip(states[held:], along, node.inputs[held:], strict=True)
    ]
    carried, found = _settled(batch, body, states[:held], turns, 0)
    outputs = list(node.attributes.get_ints("scan_output_axes", [0] * (len(found) - held)))
    ranks = [rank_of(batch, v) for v in node.outputs[held:]]
    made = [_with(s, a % r) for s, a, r in zip(found[held:], outputs, ranks, strict=True)]
    return [*carried, *made]


@rule_for("Loop")
def loop(batch: Batch, node: ir.Node, states: list[State]) -> list[State]:
    """Carried states settle; examples don't decide the number of turns."""
    (body,) = walk.subgraphs(node)
    if any(not isinstance(s, Fixed) for s in states[:2]):
        raise MixesError("examples decide the number of its turns")
    held = len(states) - 2
    carried, found = _settled(batch, body, states[2:], [], 2)
    if not isinstance(found[0], Fixed):
        raise MixesError("examples decide the number of its turns")
    return [*carried, *(_with(s, 0) for s in found[held + 1 :])]


def _settled(
    batch: Batch, body: ir.Graph, carried: list[State], turns: list[State], before: int
) -> tuple[list[State], list[State]]:
    """The carried states and results of a body at the fixed point."""
    first = [FIXED] * before
    skipped = 1 if before else 0
    for _ in range(MOST_TURNS):
        found = batch.follow(body, [*first, *carried, *turns])
        after = found[skipped : skipped + len(carried)]
        joint = [b if isinstance(a, Fixed) or a == b else _either(a, b)
                 for a, b in zip(carried, after, strict=True)]  # fmt: skip
        if any(isinstance(s, Total) for s in joint):
            raise MixesError("it hands on a sum over examples")
        if joint == carried:
            return carried, found
        carried = joint
    raise MixesError("what it hands on does not settle")


def _without(state: State, axis: int) -> State:
    if not isinstance(state, Rows):
        return state
    if state.axis == axis:
        raise MixesError("it takes one example after the other")
    return replace(state, axis=state.axis - (axis < state.axis))


def _with(state: State, axis: int) -> State:
    if not isinstance(state, Rows):
        return state
    return replace(state, axis=state.axis + (axis <= state.axis))


def rule(node: ir.Node) -> Rule | None:
    """The rule of an operator; None of an unknown one."""
    return TABLE.get(node.op_type) if is_standard(node) else None
