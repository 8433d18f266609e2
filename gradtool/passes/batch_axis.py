"""The batch axis of each value of a graph, and the values that are sums over examples."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from gradtool.graph import walk
from gradtool.graph.predicates import NO_DATA
from gradtool.graph.reads import dependent
from gradtool.passes import batch_layouts, batch_sizes
from gradtool.passes.batch_states import (
    FIXED,
    Batch,
    Fixed,
    Mixed,
    MixesError,
    Rows,
    Sized,
    State,
    Total,
)


class BatchAxis(Batch):
    """The states of all values of a graph, node after node in its order; see `Batch`."""

    def walk(self, graph: ir.Graph) -> None:
        """Find the states of the results of a graph's or a body's nodes, one after the other."""
        for node in graph:
            for value, state in zip(node.outputs, self._outputs(node), strict=True):
                self.states[value] = state

    def _outputs(self, node: ir.Node) -> list[State]:
        read = self._read(node)
        broken = next((s for s in read if isinstance(s, Mixed)), None)
        if broken is not None and node.op_type not in NO_DATA:
            return [broken] * len(node.outputs)
        try:
            return self._ruled(node)
        except MixesError as error:
            for value in node.inputs:
                self._put_ahead(value)
            try:
                return self._ruled(node)
            except MixesError:
                told = f"{node.op_type} {node.name!r}" + (f": {error}" if str(error) else "")
                return [Mixed(told)] * len(node.outputs)

    def _read(self, node: ir.Node) -> list[State]:
        read: list[State] = [self.of(v) for v in node.inputs]
        for body in walk.subgraphs(node):
            inner = {v for n in walk.nodes(body) for v in n.outputs}
            read += [self.of(v) for n in walk.nodes(body) for v in n.inputs
                     if v is not None and v not in inner]  # fmt: skip
        return read

    def _put_ahead(self, value: ir.Value | None) -> None:
        """Let a sum be known ahead if it follows from data, and from no other such sum."""
        state, maker = self.of(value), None if value is None else value.producer()
        if value is None or maker is None or maker.graph is not self.graph:
            return
        if isinstance(state, Sized) and self.is_count(state):
            state = Total("sum")
        elif value in self._changing:
            return
        if isinstance(state, Total) and state.kind != "mixed":
            self.ahead[value] = state.kind
            self.states[value] = FIXED
            self._changing |= dependent(self.graph, [value]) - {value}

    def _ruled(self, node: ir.Node) -> list[State]:
        sized = batch_sizes.sized(self, node)
        if sized is not None:
            return [sized] * len(node.outputs)
        slots = batch_sizes.SHAPE_SLOTS.get(node.op_type, ())
        states = [self._plain(v, shapes=i in slots) for i, v in enumerate(node.inputs)]
        plain = not node.attributes.data or not walk.subgraphs(node)
        fixed = all(isinstance(s, Fixed) for s in states) and all(
            isinstance(s, Fixed | Sized) for s in self._read(node)
        )
        if fixed and (plain or not any(self.varying(v) for v in node.outputs)):
            return [self._of_fixed(node, value) for value in node.outputs]
        rule = batch_layouts.rule(node)
        if rule is None:
            raise MixesError
        found = rule(self, node, states)
        made = found if isinstance(found, list) else [found] * len(node.outputs)
        return [self._held(v, s) for v, s in zip(node.outputs, made, strict=True)]

    def _plain(self, value: ir.Value | None, *, shapes: bool) -> State:
        """The state of an operand; a number of examples is one that may become known ahead."""
        state = self.of(value)
        if shapes:
            if isinstance(state, Rows | Total):
                raise MixesError("a size depends on examples")
            return FIXED
        if not isinstance(state, Sized):
            return state
        if batch_sizes.is_same(state):
            return FIXED
        if self.is_count(state):
            return Total("sum")
        raise MixesError("it takes the number of examples")

    def _of_fixed(self, node: ir.Node, value: ir.Value) -> State:
        """The state of an operator's result from fixed operands, in a size the batch may decide."""
        if not self.varying(value):
            return FIXED
        if node.op_type == "Range":
            return Rows(0, own=True)
        if node.op_type in ("ConstantOfShape", "Expand", "Tile", "DropoutMask"):
            return self.even(value)
        raise MixesError("it tells the places of examples apart")

    def _held(self, value: ir.Value, state: State) -> State:
        """A state, checked against the shape of its value."""
        if not isinstance(state, Rows | Total | Fixed) or self.symbol is None or not value.name:
            return state
        wanted = [state.axis] if isinstance(state, Rows) else []
        if self.varying(value) != wanted:
            raise MixesError("its result has other axes of examples than its operands")
        return state

    def follow(self, graph: ir.Graph, given: Sequence[State]) -> list[State]:
        """The states of a body's results, for the given ones of its inputs."""
        for value, state in zip(graph.inputs, given, strict=True):
            self.states[value] = state
        self.walk(graph)
        return [self.of(v) for v in graph.outputs]
