"""Operands of attention before an exporter's transposes, scales and repeats."""

from __future__ import annotations

from collections.abc import Container, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.constants import array
from gradtool.graph.typed import Dim, Tensor, as_tensor

Sizes = list[Dim]


@dataclass(frozen=True)
class Operands:
    """A view of producers, stopped at `kept` values, and an emitter of missing ones."""

    op: Builder
    kept: AbstractSet[ir.Value]

    def maker(
        self, value: ir.Value | None, *operators: str, domains: Container[str] = ("", "ai.onnx")
    ) -> ir.Node | None:
        """The producer of a value, if it is one of these operators, standard ones."""
        node = None if value is None or value in self.kept else value.producer()
        there = node is not None and node.domain in domains
        return node if there and node is not None and node.op_type in operators else None

    def number(self, value: ir.Value | None) -> float | None:
        """The constant number of a value of one element."""
        if value is None or value in self.kept or value.is_graph_input():
            return None
        known = array(value)
        return None if known is None or known.size != 1 else float(known.reshape(()))

    def factor(self, node: ir.Node) -> tuple[ir.Value, float] | None:
        """`(x, c)` of a node for `x · c` with a number c."""
        a, b = node.inputs
        for x, other in ((a, b), (b, a)) if node.op_type == "Mul" else ((a, b),):
            c = self.number(other)
            if x is None or c is None or not np.isfinite(c) or c == 0:
                continue
            if x.shape is not None and dims(x) == dims(node.outputs[0]):
                return x, 1 / c if node.op_type == "Div" else c
        return None

    def unscaled(self, x: ir.Value) -> tuple[ir.Value, float]:
        """`(y, c)` with `x = y · c`: all factors that are numbers."""
        total = 1.0
        while node := self.maker(x, "Mul", "Div"):
            found = self.factor(node)
            if found is None:
                break
            x, total = found[0], total * found[1]
        return x, total

    def turned(self, x: ir.Value) -> Tensor:
        """`x` with its last two axes exchanged: the source of an earlier exchange, if any."""
        node, op = self.maker(x, "Transpose", "Reshape"), self.op
        source = None if node is None else node.inputs[0]
        if node is not None and source is not None and node.op_type == "Transpose":
            given = node.attributes.get("perm")
            perm = list(given.as_ints() if given else reversed(range(len(dims(x)))))
            return op.transpose(as_tensor(source), [*perm[:-2], perm[-1], perm[-2]])
        if source is not None and source.shape is not None and dims(source)[-2:] == dims(x)[-2:]:
            *lead, a, b = dims(x)
            return self.shaped(self.turned(source), [*lead, b, a])
        return op.swap_axes(as_tensor(x), -2, -1)

    def shaped(self, x: Tensor, sizes: Sizes) -> Tensor:
        """`x` in another shape: the source of an earlier reshape, if of that shape."""
        before: ir.Value = x
        while (node := self.maker(before, "Reshape")) and node.inputs[0] is not None:
            before = node.inputs[0]
            if before.shape is not None and dims(before) == sizes:
                return as_tensor(before)
        return self.op.reshape(x, sizes)

    def by_group(self, x: ir.Value) -> ir.Value | None:
        """The heads [B, G, T, D] that `x` [B, G · n, T, D] repeats n times in a row, if so.

        Exporters write `Reshape(Expand(Unsqueeze))`, or a Concat in place of the Expand.
        """
        repeated = self.maker(self._before_reshapes(x), "Expand", "Concat")
        single = self.maker(_first(repeated), "Unsqueeze", "Reshape")
        source = _first(single)
        if repeated is None or single is None or source is None:
            return None
        if len(dims(source)) != 4 or not _repeats(repeated):
            return None
        b, g, *rest = dims(source)
        _, _, n, *_ = dims(repeated.outputs[0])
        if not isinstance(g, int) or not isinstance(n, int):
            return None
        shapes = [dims(v) for v in (single.outputs[0], repeated.outputs[0], x)]
        wanted = [[b, g, 1, *rest], [b, g, n, *rest], [b, g * n, *rest]]
        return source if shapes == wanted else None

    def _before_reshapes(self, x: ir.Value | None) -> ir.Value | None:
        while node := self.maker(x, "Reshape"):
            x = node.inputs[0]
        return x

    def only_reader(self, value: ir.Value | None) -> ir.Node | None:
        """The only reader of a value, if it is no output."""
        if value is None or value in self.kept or value.is_graph_output():
            return None
        found = readers(value)
        return found[0] if len(found) == 1 else None


def _first(node: ir.Node | None) -> ir.Value | None:
    return None if node is None else node.inputs[0]


def _repeats(node: ir.Node) -> bool:
    """Whether a node may repeat its input along axis 2 of 5."""
    if len(dims(node.outputs[0])) != 5:
        return False
    one = len(set(node.inputs)) == 1 and node.attributes.get_int("axis", 0) % 5 == 2
    return node.op_type == "Expand" or one


def dims(value: ir.Value) -> Sizes:
    """The sizes of a value; none where its rank is unknown."""
    return list(value.shape or ())


def readers(value: ir.Value) -> list[ir.Node]:
    """The readers of a value, each once."""
    return list(dict.fromkeys(use.node for use in value.uses()))


def broadcasts(mask: ir.Value, scores: Iterable[Dim]) -> bool:
    """Whether a mask has the last size of scores, and their others, or ones, or fewer axes."""
    sizes, own = list(scores), dims(mask)
    if not 1 <= len(own) <= len(sizes) or own[-1] != sizes[-1]:
        return False
    return all(a in (1, b) for a, b in zip(own, sizes[-len(own) :], strict=True))
