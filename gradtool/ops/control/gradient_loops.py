"""The gradient of Loop and Scan: the same turns in reverse order.

Forward stacks what each turn needs later (further outputs of its node).  The gradient is a Scan
over these stacks; where values have other sizes in each turn, or are sequences, it is a Loop.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.emit.clones import rename
from gradtool.errors import UnsupportedGradient
from gradtool.graph.predicates import is_float
from gradtool.graph.prune import drop
from gradtool.graph.reads import captured
from gradtool.graph.typed import as_node, as_tensor
from gradtool.ops.control.gradient_bodies import Body, is_known_outside, is_random, own, show
from gradtool.ops.control.gradient_if import is_wanted, total
from gradtool.ops.control.gradient_turns import Track, Turns, formal_like, stack

# Cheap enough to be computed again in the turn of the gradient.
LAYOUT = frozenset({
    "Cast", "Concat", "Constant", "ConstantOfShape", "Expand", "Gather", "Identity", "Range",
    "Reshape", "Shape", "Size", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze",
})  # fmt: skip


def backward_turns(
    op: Builder, turns: Turns, dys: Sequence[ir.Value | None]
) -> tuple[ir.Value | None, ...]:
    """The gradients by the inputs of the node and by its captured values."""
    outer = captured(turns.node)
    kept = [v for v in outer if is_wanted(op, v)]
    sliced = [i for i, v in enumerate(turns.arrays) if is_wanted(op, v)]
    carried = turns.carried(op)
    if not (kept or sliced or carried):
        return (None,) * (len(turns.node.inputs) + len(outer))
    reverse = _Reverse(op, turns, dys, carried, sliced, kept)
    if not (carried or reverse.kept or reverse.sliced or reverse.lookups):  # all are zero
        return (None,) * (len(turns.node.inputs) + len(captured(turns.node)))
    made = iter(reverse.emit())
    states = {i: next(made) for i in carried}
    values = {v: next(made) for v in reverse.kept}
    arrays = {i: next(made) for i in reverse.sliced}
    for node, rows in zip(reverse.lookups, made, strict=True):
        v = as_node(node).inputs[0]
        dv = reverse.scattered(node, rows)
        values[v] = op.plus(values[v], dv) if v in values else dv
    return (
        *(None,) * turns.first,
        *(states.get(i) for i in range(len(turns.states))),
        *(arrays.get(i) for i in range(len(turns.arrays))),
        *(values.get(v) for v in captured(turns.node)),  # there may be more now
    )


class _Reverse:
    """The gradient of one node with turns."""

    def __init__(
        self, op: Builder, turns: Turns, dys: Sequence[ir.Value | None], carried: list[int],
        sliced: list[int], kept: list[ir.Value],
    ) -> None:  # fmt: skip
        self.op, self.turns = op, turns
        self.carried = carried
        self._stacks: dict[ir.Value, ir.Value] = {}
        count = len(turns.states)
        self.dstates = [formal_like(op, "dstate", turns.results[i]) for i in carried]
        self.given = {
            i: dy for i, dy in enumerate(dys[count:])
            if dy is not None and is_float(turns.rows[i])
        }  # fmt: skip
        self.drows = {i: formal_like(op, "dy", turns.rows[i]) for i in self.given}
        self.starts = [
            op.zeros_like(turns.node.outputs[i]) if dys[i] is None else dys[i] for i in carried
        ]
        lookups = [n for n in turns.body if self._is_lookup(n, kept)]
        wrt = [*(turns.formal[i] for i in carried), *(turns.slices[i] for i in sliced), *kept]
        numbers = () if turns.number is None else (turns.number,)
        self.body = Body(
            op, turns.body, self._heads, wrt,
            leaves=(*turns.slices, *numbers), apart=[n.outputs[0] for n in lookups], redo=_is_cheap,
        )  # fmt: skip
        self.kept = [v for v in kept if v in self.body.gradients]
        self.sliced = [i for i in sliced if turns.slices[i] in self.body.gradients]
        self.lookups = [n for n in lookups if n.outputs[0] in self.body.gradients]

    def _is_lookup(self, node: ir.Node, captured: Sequence[ir.Value]) -> bool:
        """Whether a node reads rows of a captured value, as many in each turn.

        The gradients of the rows are stacked and scattered once, after the last turn.
        """
        if node.op_type != "Gather" or node.domain or node.attributes.get_int("axis", 0) != 0:
            return False
        table, indices = as_node(node).inputs
        body = self.turns.body
        producer = indices.producer()
        local = indices in body.inputs or (producer is not None and producer.graph is body)
        return (
            table in captured
            and local
            and self._is_even(indices)
            and self._is_even(node.outputs[0])
        )

    def _heads(self) -> dict[ir.Value, ir.Value]:
        turns = self.turns
        values = [*(turns.results[i] for i in self.carried), *(turns.rows[i] for i in self.drows)]
        return total(self.op, values, [*self.dstates, *self.drows.values()])

    def emit(self) -> list[ir.Value]:
        """The gradients by the carried states, the captured values and the scanned arrays."""
        handed = list(self.body.handed)
        if self.turns.number in self.body.read:
            handed.append(self.turns.number)
        varying = [v for v in handed if not self._is_even(v)]
        if self.turns.number is None:
            if varying:
                raise UnsupportedGradient(self.turns.node, _uneven(varying[0]))
            return self._scan(handed)
        count = self._count()
        states = [(self.turns.formal[i], self.turns.results[i]) for i in self.carried]
        even = not varying and all(self._is_even(v) for pair in states for v in pair)
        if even and isinstance(count, int) and count > 0:
            return self._scan(handed)
        return self._loop([v for v in handed if v not in varying], varying)

    def _is_even(self, value: ir.Value) -> bool:
        """Whether a value has the same size in every turn."""
        if not isinstance(value.type, ir.TensorType) or value.shape is None:
            return False
        return is_known_outside(self.op, list(value.shape))

    def _scan(self, handed: list[ir.Value]) -> list[ir.Value]:
        """Scan the stacked values of forward; onnxruntime refuses to scan arrays of length zero."""
        op, turns = self.op, self.turns
        arrays: list[tuple[ir.Value, ir.Value, Track]] = []
        known: dict[ir.Value, ir.Value] = {}
        for i, dy in self.given.items():
            arrays.append((dy, self.drows[i], turns.written[i]))
        for i, inner in enumerate(turns.slices):
            if inner in self.body.read:
                known[inner] = formal_like(op, "again", inner)
                arrays.append((turns.arrays[i], known[inner], turns.read[i]))
        stacks = handed
        if not arrays and not stacks:  # a Scan counts its turns by what it scans
            stacks = [turns.number if turns.number is not None else turns.slices[0]]
        for value in stacks:
            known[value] = formal_like(op, "kept", value)
            arrays.append((self._stack(value), known[value], Track()))
        sums = [formal_like(op, "sum", v) for v in self.kept]
        zeros = [op.zeros_like(v) for v in self.kept]
        with op.body([*self.dstates, *sums, *(inner for _, inner, _ in arrays)]) as graph:
            found = self.body.move(known)
            made = self._states(found, sums)
            made += [found[turns.slices[i]] for i in self.sliced]
            made += [found[n.outputs[0]] for n in self.lookups]
            for value in made:
                graph.outputs.append(own(op, value, graph.outputs))
        reads = [track for _, _, track in arrays]
        writes = [*(turns.read[i] for i in self.sliced), *(Track() for _ in self.lookups)]
        results = op.Scan(
            *self.starts, *zeros, *(a for a, _, _ in arrays), body=graph, outputs=len(made),
            num_scan_inputs=len(arrays),
            scan_input_axes=[t.axis for t in reads],
            scan_input_directions=[1 - t.backwards for t in reads],
            scan_output_axes=[t.axis for t in writes] or None,
            scan_output_directions=[1 - t.backwards for t in writes] or None,
        )  # fmt: skip
        return [results] if len(made) == 1 else list(results)

    def _loop(self, stacked: list[ir.Value], varying: list[ir.Value]) -> list[ir.Value]:
        """Loop back over the turns taken, reading the stacked values of forward row by row."""
        op, turns = self.op, self.turns
        assert turns.number is not None  # noqa: S101 - a Scan is no Loop
        again = [v for v in varying if not isinstance(v.type, ir.TensorType)]
        varying = [v for v in varying if v not in again]
        sequences = self._replay(varying)
        rows = {v: self._stack(v) for v in dict.fromkeys((turns.number, *stacked))}
        count = op.squeeze(op.size_of(as_tensor(rows[turns.number]), 0, 1), 0)
        last = op.Sub(count, 1)
        number = op.formal("turn", [], ir.DataType.INT64)
        going = op.formal("going", [], ir.DataType.BOOL)
        sums = [formal_like(op, "sum", v) for v in self.kept]
        zeros = [op.zeros_like(v) for v in self.kept]
        with op.body([number, going, *self.dstates, *sums]) as graph:
            graph.outputs.append(op.Identity(going))
            turn = op.Sub(last, number)
            known: dict[ir.Value, ir.Value] = {turns.number: turn}
            for i, dy in self.given.items():
                known[self.drows[i]] = _shaped(op.Gather(dy, turn, axis=0), turns.rows[i])
            for value in stacked:
                if value is not turns.number:
                    known[value] = _shaped(op.Gather(rows[value], turn, axis=0), value)
            for value, sequence in zip(varying, sequences, strict=True):
                known[value] = op.SequenceAt(sequence, turn, like=value)
            known |= self._after(turn, again)
            found = self.body.move(known)
            made = [*self._states(found, sums), *(found[n.outputs[0]] for n in self.lookups)]
            for value in made:
                graph.outputs.append(own(op, value, graph.outputs))
        results = op.Loop(
            count, np.asarray(True), *self.starts, *zeros, body=graph, outputs=len(made)
        )
        taken = [results] if len(made) == 1 else list(results)
        first = len(made) - len(self.lookups)
        return [*taken[:first], *(op.slice(r, 0, -1, -(2**31), -1) for r in taken[first:])]

    def scattered(self, node: ir.Node, rows: ir.Value) -> ir.Value:
        """Gradient of a table, from the gradients of the rows read in each turn."""
        op, (table, indices) = self.op, as_node(node).inputs
        if indices is self.turns.number and self._count() == table.shape[0]:
            return rows
        return op.GatherGrad(rows, self._stack(indices), op.shape(table), axis=0)

    def _replay(self, values: list[ir.Value]) -> list[ir.Value]:
        """Values of other sizes in each turn, as sequences that a second forward loop collects."""
        op, turns = self.op, self.turns
        if not values:
            return []
        if is_random(turns.node):
            raise UnsupportedGradient(turns.node, _uneven(values[0]))
        body, found = self._forward(values)
        empty, formal = [], []
        for value in values:
            empty.append(op.SequenceEmpty(dtype=value.dtype))
            formal.append(_sequence(op, value))
        body.inputs.extend(formal)
        with op.inside(body):
            for so_far, value in zip(formal, found, strict=True):
                body.outputs.append(op.SequenceInsert(so_far, value))
        count = len(turns.states) + len(values)
        results = op.Loop(*turns.node.inputs, *empty, body=body, outputs=count)
        made = [results] if count == 1 else list(results)
        return [*made[len(turns.states) :]]

    def _after(self, turn: ir.Value, values: list[ir.Value]) -> dict[ir.Value, ir.Value]:
        """States that can't be stacked, as they enter a turn: earlier turns run again."""
        op, turns = self.op, self.turns
        if not values:
            return {}
        odd = next((v for v in values if v not in turns.formal), None)
        if odd is not None or is_random(turns.node):
            raise UnsupportedGradient(turns.node, _uneven(odd or values[0]))
        body, _ = self._forward([])
        count = len(turns.states)
        made = op.Loop(turn, *turns.node.inputs[1:], body=body, outputs=count)
        states = dict(zip(turns.formal, [made] if count == 1 else made, strict=True))
        return {v: states[v] for v in values}

    def _forward(self, values: list[ir.Value]) -> tuple[ir.Graph, list[ir.Value]]:
        """A copy of the forward body that gives nothing but its states, and `values` in it."""
        turns = self.turns
        before = list(turns.body.outputs)
        turns.body.outputs.extend(values)
        body = turns.body.clone(allow_outer_scope_values=True)
        turns.body.outputs[:] = before
        rename(self.op.names, body)
        found = list(body.outputs[len(before) :])
        del body.outputs[1 + len(turns.states) :]
        return body, found

    def _states(self, found: dict[ir.Value, ir.Value], sums: list[ir.Value]) -> list[ir.Value]:
        formal = [self.turns.formal[i] for i in self.carried]
        made = [found[v] if v in found else self.op.zeros_like(v) for v in formal]
        sums = [self.op.plus(so_far, found[v]) for so_far, v in zip(sums, self.kept, strict=True)]
        return [*made, *sums]

    def _stack(self, value: ir.Value) -> ir.Value:
        """A stacked output of the forward node, added for this value of every turn."""
        if value not in self._stacks:
            self._stacks[value] = stack(self.op, self.turns, value, self._count())
        return self._stacks[value]

    def _count(self) -> int | ir.SymbolicDim:
        """The number of turns, as the size of a stacked or scanned array."""
        turns, count = self.turns, len(self.turns.states)
        for i, track in enumerate(turns.written):
            shape = turns.node.outputs[count + i].shape
            if shape is not None:
                return shape[track.axis]
        for array, track in zip(turns.arrays, turns.read, strict=True):
            if array.shape is not None:
                return array.shape[track.axis]
        for output in turns.node.outputs[count:]:  # stacked for the gradient before
            if output.shape is not None:
                return output.shape[0]
        return self._inferred_count()

    def _inferred_count(self) -> int | ir.SymbolicDim:
        """Turns of a Loop without stacked outputs, inferred by adding one for the moment."""
        node, body, op = self.turns.node, self.turns.body, self.op
        probe = as_tensor(show(op, node, body, as_tensor(self.turns.number), ir.Shape([])))
        before = [(v, v.type, v.shape) for v in node.outputs]
        op.infer(node)
        count = probe.shape[0]
        for value, kind, shape in before:
            value.type, value.shape = kind, shape
        node.resize_outputs(len(node.outputs) - 1)
        made = body.outputs.pop().producer()
        if made is not None:
            drop([made])
        return count


def _sequence(op: Builder, element: ir.Value) -> ir.Value:
    """Input of a body: a sequence of values like the given one."""
    made = formal_like(op, "sequence", element)
    made.type = ir.SequenceType(ir.TensorType(as_tensor(element).dtype))
    return made


def _shaped(value: ir.Value, like: ir.Value) -> ir.Value:
    value.shape = None if like.shape is None else like.shape.copy()
    return value


def _uneven(value: ir.Value) -> str:
    return f"{value.name!r} has another size in each turn, and can't be kept for its gradient"


def _is_cheap(node: ir.Node) -> bool:
    if is_random(node):
        return False
    return node.op_type in LAYOUT or not any(is_float(v) for v in node.outputs)
