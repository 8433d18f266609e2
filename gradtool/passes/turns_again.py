"""Recompute in loops of a training graph: backward takes turns again in place of their stacks.

Forward keeps the states that enter every so many turns.  Backward takes these turns again from
there, and then their gradient.  One at a time, a turn of the gradient recomputes its needs of its
turn of forward; more are a segment, and backward is a Scan over segments.

Source: Chen et al. 2016 (arXiv:1604.06174), §4, along a loop: of n turns with states of c bytes and
r bytes to stack, segments of L turns keep c·n/L + r·L.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.prune import prune
from gradtool.graph.typed import as_tensor
from gradtool.ops.control.gradient_turns import Track, formal_like, stack
from gradtool.passes._loops import (
    Pair,
    give,
    in_place_of,
    listed,
    name_like,
    pairs,
    replace,
    scan,
    turn,
)
from gradtool.passes._segments import Segments
from gradtool.passes.trim import trim
from gradtool.passes.untie_initializers import lift_initializers


def take_again(model: ir.Model, turns: Mapping[str, int]) -> None:
    """Take turns of loops again, in place: so many at a time, by the name of the gradient's node.

    Loops are rewritten in this order; that of a segment is there once its segments are.

    Raises:
        ValueError: the model has no such loop, or that has no such number of turns.
    """
    op = Builder(model)
    lift_initializers(op)
    for name, length in turns.items():
        pair = next(iter(pairs(model, name)), None)
        if pair is None or not 1 <= length <= pair.most:
            raise ValueError(f"no loop {name!r} has {length} turns to take again")
        if length == 1:
            _turn_by_turn(op, pair)
        else:
            Segments(op, pair, length).write()
    trim(model)
    prune(model)


def _turn_by_turn(op: Builder, pair: Pair) -> None:
    """Let each turn of the gradient recompute the stacked values of its turn of forward."""
    if pair.index is not None:
        _gathered(op, pair, pair.index)
        return
    f, b = pair.forward, pair.backward
    _, needed = pair.again()
    gone = {pair.stacks[row] for row in pair.inside}
    arrays = [
        (array, inner, track)
        for array, inner, track in zip(b.arrays, b.slices, b.read, strict=True)
        if inner not in gone
    ]
    missing = pair.missing
    if not arrays and not missing:  # a Scan counts its turns by its scanned arrays
        missing = [] if f.number is None else [f.number]
        needed = {*needed, *f.slices[:1]}
    stacked = [stack(op, f, value, pair.count) for value in missing]
    arrays += [(a, v, Track(backwards=1)) for a, v in zip(stacked, missing, strict=True)]
    arrays += [
        (array, value, Track(track.axis, 1 - track.backwards))
        for array, value, track in zip(f.arrays, f.slices, f.read, strict=True)
        if value in needed
    ]
    outer, inner, read = zip(*arrays, strict=True)
    slices = [formal_like(op, "again", value) for value in inner]
    states = [formal_like(op, "state", value) for value in b.formal]
    known = dict(zip((*b.formal, *inner), (*states, *slices), strict=True))
    with in_place_of(op, b.node):
        with op.body([*states, *slices]) as graph:
            _compute(op, pair, known)
            give(op, graph, turn(op, b.body, known, [*b.results, *b.rows]))
        made = scan(op, graph, b.states, outer, read, b.written)
    name_like(made, b.node)
    replace([b.node], b.node.outputs, made)


def _gathered(op: Builder, pair: Pair, index: ir.Value) -> None:
    """The same for a gradient that is a Loop, with Gathers for its reads of a turn."""
    f, b = pair.forward, pair.backward
    stacks = {value: as_tensor(stack(op, f, value, pair.count)) for value in pair.missing}
    formal = [formal_like(op, "state", value) for value in b.body.inputs]
    known = dict(zip(b.body.inputs, formal, strict=True))
    with in_place_of(op, b.node):
        with op.body(formal) as graph:
            (at,) = turn(op, b.body, known, [index])
            for value, stacked in stacks.items():
                known[value] = op.Gather(stacked, at, axis=0)
                known[value].shape = None if value.shape is None else value.shape.copy()
            _compute(op, pair, known)
            give(op, graph, turn(op, b.body, known, b.body.outputs))
        made = listed(op.Loop(*b.node.inputs, body=graph, outputs=len(b.node.outputs)))
    name_like(made, b.node)
    replace([b.node], b.node.outputs, made)


def _compute(op: Builder, pair: Pair, known: dict[ir.Value, ir.Value]) -> None:
    """Recompute the reads of a gradient's turn in its turn of forward."""
    f = pair.forward
    for row, value in pair.held.items():
        (known[value],) = turn(op, pair.backward.body, known, [pair.stacks[row]])
    values = turn(op, f.body, known, [f.rows[row] for row in pair.inside], again=True)
    known |= zip((pair.stacks[row] for row in pair.inside), values, strict=True)
