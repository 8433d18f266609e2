"""Recurrent operators of unusual forms as a Scan over their cell in standard operators.

Unusual are a clip, coupled gates (`input_forget`) and other activations than those of the standard
(an RNN may have Relu): the kernels of RNN, GRU and LSTM know none of these.  The products with X
are taken for all times at once, before the Scan.

Source: ONNX RNN-22, GRU-22, LSTM-22.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph import walk
from gradtool.graph.attributes import arguments
from gradtool.graph.typed import Node, Tensor
from gradtool.operators.activations import Activation, resolve, value
from gradtool.operators.recurrence import GATES, is_usual
from gradtool.ops.recurrent.body_shared import alive, bias_of, directions, padded, zero_if_empty
from gradtool.passes.lower_contrib import literals, replace


def lower_recurrent(model: ir.Model) -> int:
    """Replace the nodes of unusual forms, in place; return how many there were.

    Shapes must have been inferred, and operands seen to fit each other.
    """
    nodes = [node for node in walk.nodes(model.graph) if _is_unusual(node)]
    if nodes:
        op = Builder(model)
        with literals(model):  # bounds and slopes of activations
            for node in nodes:
                replace(op, node, _scans)
    return len(nodes)


def _is_unusual(node: ir.Node) -> bool:
    standard = node.domain in ("", "ai.onnx") and node.op_type in GATES
    return standard and not is_usual(node.op_type, arguments(node))


def _scans(op: Builder, node: Node) -> list[Tensor]:
    """`(Y, Y_h)`, and Y_c of LSTM: a Scan for each direction."""
    given, kind = arguments(node), CELLS[node.op_type]
    x, w, r, b, lens, *rest = padded(node.inputs, 8)
    p, layout, found = rest[2] if kind.states == 2 else None, given.get("layout", 0), []
    sides = directions(op, given.get("direction", "forward"), layout, x)
    for side, acts in zip(sides, resolve(node.op_type, given), strict=True):
        wd, rd, bd, pd = side.weight(w), side.weight(r), side.weight(b), side.weight(p)
        cell = kind(op, given, acts, op.swap_axes(wd, 0, 1), op.swap_axes(rd, 0, 1), bd, pd)
        sizes = op.sizes([side.x.shape[1], cell.hidden])
        zero = op.ConstantOfShape(sizes, value=np.zeros(1, x.dtype.numpy()))
        firsts = [zero if v is None else side.state(v) for v in rest[: kind.states]]
        entering = [cell.entering(side.x), alive(op, side.x, lens)]
        *lasts, y = side.scan(cell.step, firsts, entering, 1, reverse=False)
        found.append([y, *(zero_if_empty(op, v, lens) for v in lasts)])
    axes = [1, *[layout] * kind.states]
    y, *lasts = (
        op.concat([op.unsqueeze(v, axis) for v in parts], axis)
        for axis, parts in zip(axes, zip(*found, strict=True), strict=True)
    )
    return [op.transpose(y, [2, 0, 1, 3]) if layout else y, *lasts]


class _Cell:
    """One time of one direction, in standard operators: an RNN."""

    states = 1

    def __init__(
        self,
        op: Builder,
        given: Mapping[str, Any],
        acts: Sequence[Activation],
        w: Tensor,
        r: Tensor,
        b: Tensor | None,
        p: Tensor | None,
    ) -> None:
        """`w` and `r` are transposed: [I, gates · H] and [H, gates · H]."""
        self.op, self.given, self.acts = op, given, acts
        self.w, self.r, self.b, self.p = w, r, b, p
        self.hidden = given.get("hidden_size") or r.shape[0]

    def parts(self, a: Tensor, *counts: int, axis: int = 1) -> list[Tensor]:
        """Parts of so many gates each, of known sizes even if those of weights are open."""
        sizes = self.op.sizes([count * self.hidden for count in counts])
        return [*self.op.Split(a, sizes, outputs=len(counts), axis=axis)]

    def entering(self, x: Tensor) -> Tensor:
        """`x Wᵀ` and the biases, for all times."""
        a = self.op.MatMul(x, self.w)
        return a if self.b is None else a + bias_of(self.op, self.b)

    def step(self, states: Sequence[Tensor], now: Sequence[Any]) -> list[Tensor]:
        """The states after one time, and the row of Y; a sample that has ended shows 0."""
        op, (a, live) = self.op, now
        made = self.following(states, a)
        if live is None:
            return [*made, op.Identity(made[0])]
        kept = [op.Where(live, new, old) for new, old in zip(made, states, strict=True)]
        return [*kept, op.Where(live, made[0], op.constant(0.0, a.dtype))]

    def following(self, states: Sequence[Tensor], a: Tensor) -> list[Tensor]:
        """The states after one time, from the inputs of the gates."""
        return [self.gate(0, a + self.op.MatMul(states[0], self.r))]

    def gate(self, number: int, a: Tensor) -> Tensor:
        """An activation by its number, of a clipped operand."""
        op, clip = self.op, self.given.get("clip")
        if clip is not None:
            a = op.Clip(a, op.constant(-clip, a.dtype), op.constant(clip, a.dtype))
        y: Tensor = value(op, self.acts[number], a)
        return y


class _Gru(_Cell):
    """`h = z h₋₁ + (1 - z) hh`, with gates in the order z, r, h."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.linear = self.given.get("linear_before_reset", 0)
        if not self.linear:
            self.zr, self.hh = self.parts(self.r, 2, 1)
        elif self.b is not None:
            self.biases = self.parts(self.b, 3, 3, axis=0)

    def entering(self, x: Tensor) -> Tensor:
        if not self.linear or self.b is None:
            return super().entering(x)
        return self.op.MatMul(x, self.w) + self.biases[0]

    def following(self, states: Sequence[Tensor], a: Tensor) -> list[Tensor]:
        """The state after one time of a GRU: `z h₋₁ + (1 - z) hh`."""
        op, (h,) = self.op, states
        a_z, a_r, a_h = self.parts(a, 1, 1, 1)
        if self.linear:
            link = op.MatMul(h, self.r)
            link = link if self.b is None else link + self.biases[1]
            z, reset, q = self.parts(link, 1, 1, 1)
        else:
            z, reset = self.parts(op.MatMul(h, self.zr), 1, 1)
        z, reset = self.gate(0, a_z + z), self.gate(0, a_r + reset)
        q = reset * q if self.linear else op.MatMul(reset * h, self.hh)
        hh = self.gate(1, a_h + q)
        return [(h - hh) * z + hh]


class _Lstm(_Cell):
    """`c = f c₋₁ + i g`, `h = o h(c)`, with gates in the order i, o, f, c."""

    states = 2

    def following(self, states: Sequence[Tensor], a: Tensor) -> list[Tensor]:
        op, (h, c), p = self.op, states, self.p
        i, o, f, g = self.parts(a + op.MatMul(h, self.r), 1, 1, 1, 1)
        if p is not None:
            peeps = self.parts(p, 1, 1, 1, axis=0)
            i, f = i + c * peeps[0], f + c * peeps[2]
        i = self.gate(0, i)
        f = 1 - i if self.given.get("input_forget") else self.gate(0, f)
        new = f * c + i * self.gate(1, g)
        o = self.gate(0, o if p is None else o + new * peeps[1])
        return [o * value(op, self.acts[2], new), new]


CELLS: dict[str, type[_Cell]] = {"RNN": _Cell, "GRU": _Gru, "LSTM": _Lstm}
