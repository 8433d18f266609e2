"""A loop and its gradient in segments of turns: forward keeps the states that enter each.

The turns of a segment are taken again in backward, before those of their gradient: an outer Scan
over segments has both loops inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.typed import as_node, as_tensor
from gradtool.ops.control.gradient_turns import Track, Turns, formal_like
from gradtool.passes._loops import Pair, give, in_place_of, name_like, replace, scan, taken

INNER = "/turns"  # ends the name of the gradient of a segment, within that of the whole loop


class Segments:
    """A loop and its gradient in segments of `length` turns.

    Turns that are left over are a last segment of their own, beside the Scan over the others.
    """

    def __init__(self, op: Builder, pair: Pair, length: int) -> None:
        count = pair.count
        assert isinstance(count, int)  # noqa: S101 - see `take_again`
        self.op, self.pair, self.length, self.count = op, pair, length, count
        self.rest = count % length
        self.main = count - self.rest
        f = self.forward = pair.forward
        self.name = f.node.name or ""
        self.carried = len(f.states)
        self.rows = [row for row in range(len(f.rows)) if row not in pair.stacks]
        places = {value: place for place, value in enumerate(pair.backward.slices)}
        self.stacks = {row: places[value] for row, value in pair.stacks.items()}
        self.blocks: list[ir.Value] = []
        self.firsts: list[ir.Value] = []  # of each segment its first turn, where a Loop counts them

    def write(self) -> None:
        """Put both in place of the loop and its gradient."""
        f = self.forward
        with in_place_of(self.op, f.node):
            made, entering, last = self._run()
        outputs = f.node.outputs
        name_like(made, f.node)
        old = [*outputs[: self.carried], *(outputs[self.carried + row] for row in self.rows)]
        replace([], old, made)
        b = Turns.of(as_node(self.pair.backward.node))  # reads the replaced node
        with in_place_of(self.op, b.node):
            made = self._return(b, entering, last)
        name_like(made, b.node)
        replace([b.node, f.node], b.node.outputs, made)

    def _run(self) -> tuple[list[ir.Value], list[ir.Value], list[ir.Value]]:
        """Final states and rows; the states that enter each segment, and the last one."""
        op, f, count = self.op, self.forward, self.carried
        self.blocks = [self._cut(a, t, 0) for a, t in zip(f.arrays, f.read, strict=True)]
        if f.number is not None:
            self.firsts = [op.constant(np.arange(0, self.main, self.length, dtype=np.int64))]
        states = [formal_like(op, "state", v) for v in f.formal]
        slices = [self.slice(a, t) for a, t in zip(self.blocks, f.read, strict=True)]
        firsts = [self.slice(a, Track()) for a in self.firsts]
        with op.body([*states, *slices, *firsts]) as graph:
            made = taken(op, f, self.length, states, slices, _only(firsts), self.rows)
            give(op, graph, [*made[:count], *states, *made[count:]])
        written = [f.written[row] for row in self.rows]
        read = [*f.read, *(Track() for _ in firsts)]
        arrays = [*self.blocks, *self.firsts]
        made = scan(op, graph, f.states, arrays, read, [*(Track() for _ in states), *written])
        last, entering = made[:count], made[count : 2 * count]
        rows = [self._joined(v, t) for v, t in zip(made[2 * count :], written, strict=True)]
        if not self.rest:
            return [*last, *rows], entering, last
        made = self._left_over(last, self.rows)
        return [*made[:count], *self._chained(rows, made[count:], written)], entering, last

    def _return(
        self, b: Turns, entering: Sequence[ir.Value], last: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """States and rows of the gradient."""
        op, f, stacks = self.op, self.forward, self.stacks
        states: list[ir.Value | None] = list(b.states)
        heads, all_rows = list[ir.Value](), range(len(b.rows))
        if self.rest:
            with self._again():
                made = self._left_over(last, list(stacks), again=True)
            stacked = dict(zip(stacks.values(), made[self.carried :], strict=True))
            arrays = [
                stacked[i] if i in stacked else self._part(a, t, 0, self.rest)
                for i, (a, t) in enumerate(zip(b.arrays, b.read, strict=True))
            ]
            made = taken(op, b, self.rest, states, arrays, None, all_rows)
            states, heads = [*made[: len(states)]], made[len(states) :]
        scanned = _Scanned()
        carried = [scanned.take(self, v, Track(backwards=1)) for v in entering]
        firsts = [scanned.take(self, v, Track(backwards=1)) for v in self.firsts]
        slices = [
            scanned.take(self, block, Track(t.axis, 1 - t.backwards), array)
            for block, array, t in zip(self.blocks, f.arrays, f.read, strict=True)
        ]
        others = {
            i: scanned.find(a, t) or scanned.take(self, self._cut(a, t, self.rest), t, a)
            for i, (a, t) in enumerate(zip(b.arrays, b.read, strict=True))
            if i not in stacks.values()
        }
        formal = [formal_like(op, "state", v) for v in b.formal]
        with op.body([*formal, *scanned.slices]) as graph:
            with self._again():
                made = taken(
                    op, f, self.length, carried, slices, _only(firsts), list(stacks), again=True
                )
            others |= zip(stacks.values(), made[self.carried :], strict=True)
            arrays = [others[i] for i in range(len(b.arrays))]
            made = taken(op, b, self.length, formal, arrays, None, all_rows)
            name_like(made, b.node, INNER)
            give(op, graph, made)
        made = scan(op, graph, states, scanned.arrays, scanned.read, b.written)
        rows = [self._joined(v, t) for v, t in zip(made[len(states) :], b.written, strict=True)]
        if self.rest:
            rows = self._chained(heads, rows, b.written)
        return [*made[: len(states)], *rows]

    def _left_over(
        self, states: Sequence[ir.Value], rows: Sequence[int], *, again: bool = False
    ) -> list[ir.Value]:
        """The turns of forward after the last whole segment."""
        op, f = self.op, self.forward
        arrays = [
            self._part(a, t, self.main, self.count) for a, t in zip(f.arrays, f.read, strict=True)
        ]
        first = op.constant(np.asarray(self.main, np.int64))
        return taken(op, f, self.rest, states, arrays, first, rows, again=again)

    def _again(self) -> AbstractContextManager[None]:
        """Emit recomputed nodes at the current point of emission."""
        op, name = self.op, self.name
        return op.at(op.anchor, stage="recompute", source=name, prefix=f"{name}/again")

    # -------------------------------------------------------------------- arrays

    def _part(self, array: ir.Value, track: Track, first: int, end: int) -> ir.Value:
        """The part of an array read by the turns from `first` to `end`."""
        if (first, end) == (0, self.count):
            return array
        if track.backwards:
            first, end = self.count - end, self.count - first
        return self.op.slice(as_tensor(array), track.axis, first, end)

    def _cut(self, array: ir.Value, track: Track, first: int) -> ir.Value:
        """The part of an array read by whole segments, from turn `first` on: one axis more."""
        part = as_tensor(self._part(array, track, first, first + self.main))
        dims = list(part.shape)
        dims[track.axis : track.axis + 1] = [self.main // self.length, self.length]
        return self.op.reshape(part, dims)

    def slice(self, array: ir.Value, track: Track) -> ir.Value:
        """The part of an array read by a segment."""
        dims = list(as_tensor(array).shape)
        del dims[track.axis]
        return self.op.formal("slice", dims, as_tensor(array).dtype)

    def _joined(self, rows: ir.Value, track: Track) -> ir.Value:
        """Rows of segments as rows of their turns: one axis less."""
        dims = list(as_tensor(rows).shape)
        dims[track.axis : track.axis + 2] = [self.main]
        return self.op.reshape(as_tensor(rows), dims)

    def _chained(
        self, heads: Sequence[ir.Value], tails: Sequence[ir.Value], tracks: Sequence[Track]
    ) -> list[ir.Value]:
        """Rows of some turns and of later ones, as rows of all."""
        parts = zip(heads, tails, tracks, strict=True)
        return [
            self.op.Concat(*((b, a) if t.backwards else (a, b)), axis=t.axis) for a, b, t in parts
        ]


class _Scanned:
    """The arrays read by the Scan over segments, each once."""

    def __init__(self) -> None:
        self.arrays: list[ir.Value] = []
        self.slices: list[ir.Value] = []
        self.read: list[Track] = []
        self._known: dict[tuple[ir.Value, Track], ir.Value] = {}

    def take(
        self, segments: Segments, array: ir.Value, track: Track, whole: ir.Value | None = None
    ) -> ir.Value:
        """Read an array that is cut; return a segment's part of it.  `whole` is the one uncut."""
        self.arrays.append(array)
        self.slices.append(segments.slice(array, track))
        self.read.append(track)
        if whole is not None:
            self._known[whole, track] = self.slices[-1]
        return self.slices[-1]

    def find(self, whole: ir.Value, track: Track) -> ir.Value | None:
        """A segment's part of an array, if read already."""
        return self._known.get((whole, track))


def _only(values: Sequence[ir.Value]) -> ir.Value | None:
    return values[0] if values else None
