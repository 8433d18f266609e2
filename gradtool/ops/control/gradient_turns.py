"""Common parts of Loop and Scan: turns, with states, slices to read and rows to write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.predicates import is_float
from gradtool.graph.reads import captured, dependent
from gradtool.graph.typed import Node
from gradtool.ops.control.gradient_bodies import show
from gradtool.ops.control.gradient_if import is_wanted


@dataclass(frozen=True)
class Track:
    """An array that the turns read or write one slice of, along an axis, perhaps backwards."""

    axis: int = 0
    backwards: int = 0


@dataclass(frozen=True)
class Turns:
    """Turns of a Loop or a Scan.

    State i enters as `states[i]`, is `formal[i]` within a turn and leaves it as `results[i]`.
    Slices of `arrays` are `slices`; `rows` are stacked, as node outputs after the states.
    """

    node: Node
    body: ir.Graph
    states: tuple[ir.Value | None, ...]
    formal: tuple[ir.Value, ...]
    results: tuple[ir.Value, ...]
    arrays: tuple[ir.Value, ...]
    slices: tuple[ir.Value, ...]
    read: tuple[Track, ...]
    rows: tuple[ir.Value, ...]
    written: tuple[Track, ...]
    first: int
    number: ir.Value | None = None

    @classmethod
    def of(cls, node: Node) -> Turns:
        """A Loop or a Scan."""
        return cls.of_loop(node) if node.op_type == "Loop" else cls.of_scan(node)

    @classmethod
    def of_loop(cls, node: Node) -> Turns:
        """A Loop: its states follow the count and the condition."""
        body = node.attributes["body"].as_graph()
        states = node.inputs[2:]
        rows = tuple(body.outputs[1 + len(states) :])
        return cls(
            node, body, tuple(states), tuple(body.inputs[2:]),
            tuple(body.outputs[1 : 1 + len(states)]), (), (), (), rows, (Track(),) * len(rows),
            first=2, number=body.inputs[0],
        )  # fmt: skip

    @classmethod
    def of_scan(cls, node: Node) -> Turns:
        """A Scan: its scanned arrays follow the states."""
        body = node.attributes["body"].as_graph()
        count = len(node.inputs) - node.attributes["num_scan_inputs"].as_int()
        rows = tuple(body.outputs[count:])
        ranks = [len(v.shape or ()) + 1 for v in (*body.inputs[count:], *rows)]
        read = _tracks(node, "input", ranks[: len(node.inputs) - count])
        written = _tracks(node, "output", ranks[len(read) :])
        return cls(
            node, body, tuple(node.inputs[:count]), tuple(body.inputs[:count]),
            tuple(body.outputs[:count]), tuple(node.inputs[count:]), tuple(body.inputs[count:]),
            read, rows, written, first=0,
        )  # fmt: skip

    def carried(self, op: Builder) -> list[int]:
        """The states that a gradient flows through, from one turn to the one before."""
        sources = {v for v in captured(self.node) if is_wanted(op, v)}
        pairs = zip((*self.states, *self.arrays), (*self.formal, *self.slices), strict=True)
        sources |= {inner for outer, inner in pairs if is_wanted(op, outer)}
        while True:
            reach = dependent(self.body, sources)
            more = {
                inner for inner, result in zip(self.formal, self.results, strict=True)
                if result in reach and is_float(inner)
            }  # fmt: skip
            if more <= sources:
                break
            sources |= more
        return [i for i, inner in enumerate(self.formal) if inner in sources]


def stack(op: Builder, turns: Turns, value: ir.Value, count: int | ir.SymbolicDim) -> ir.Value:
    """A further output of a node, the last: a value of its body in each of so many turns."""
    node = turns.node
    made = show(op, node, turns.body, value, ir.Shape([count, *(value.shape or ())]))
    rows = len(node.outputs) - len(turns.states)
    for name in ("scan_output_axes", "scan_output_directions"):
        if name in node.attributes:
            values = [*node.attributes[name].as_ints(), *[0] * rows][:rows]
            node.attributes[name] = ir.AttrInt64s(name, values)
    return made


def formal_like(op: Builder, hint: str, like: ir.Value) -> ir.Value:
    """An input of a body, of the type and shape of a value."""
    shape = None if like.shape is None else like.shape.copy()
    return ir.Value(name=op.names.fresh(hint), type=like.type, shape=shape)


def _tracks(node: ir.Node, which: str, ranks: Sequence[int]) -> tuple[Track, ...]:
    zeros = [0] * len(ranks)
    axes = node.attributes.get_ints(f"scan_{which}_axes", zeros)
    flags = node.attributes.get_ints(f"scan_{which}_directions", zeros)
    return tuple(
        Track(axis % rank, flag) for axis, rank, flag in zip(axes, ranks, flags, strict=True)
    )
