"""Bodies of calls that are alike: emitted once, and stamped from then on.

The layers of a model repeat, and so do the calls in their gradients.  A body is a function of what
its call reads and of its attributes; it is stamped where its nodes read nothing else, and where
nothing that they make is a size, of which the builder knows more than type and shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph import walk
from gradtool.graph.metadata import SOURCE, STAGE, notes
from gradtool.graph.predicates import is_float

Emit = Callable[[Builder, ir.Node], list[ir.Node]]


@dataclass(frozen=True)
class _Place:
    """Where a value of a body comes from: an output of one of its nodes, by their order.

    Of the call, an input, where the node is below 0.
    """

    node: int
    index: int


_CALL = -1


@dataclass(frozen=True)
class _Step:
    """A node of a body."""

    domain: str
    op_type: str
    inputs: tuple[_Place | ir.Value | None, ...]
    attributes: tuple[ir.Attr, ...]
    outputs: tuple[tuple[ir.TypeProtocol, tuple[int | ir.SymbolicDim, ...]], ...]


@dataclass(frozen=True)
class _Stamp:
    """A body: its nodes in order, and which values are its results."""

    steps: tuple[_Step, ...]
    results: tuple[_Place, ...]


class Stamps:
    """Emits the bodies of calls: by `emit`, or as one that was emitted before.

    Either leaves the results in `op.results`.
    """

    def __init__(self, op: Builder, emit: Emit) -> None:
        self._op = op
        self._emit = emit
        self._known: dict[Hashable, _Stamp | None] = {}

    def emit(self, call: ir.Node) -> list[ir.Node]:
        """Emit the body of a call before it, and return its nodes."""
        key = self._key(call)
        stamp = None if key is None else self._known.get(key)
        if stamp is not None:
            return self._put(stamp, call)
        emitted = self._emit(self._op, call)
        if key is not None and key not in self._known:
            self._known[key] = self._taken(call, emitted)
        return emitted

    def _key(self, call: ir.Node) -> Hashable | None:
        """What a body can depend on; None where that is more than can be compared."""
        seen = self._op.looked_at(call)
        if seen is None:
            return None
        values = list(call.inputs)
        constants = tuple(
            [
                id(v.const_value)
                for v in values
                if v is not None and v.const_value is not None and not is_float(v)
            ]
        )
        return seen, tuple([values.index(v) for v in values]), constants, call.metadata_props[STAGE]

    def _taken(self, call: ir.Node, emitted: Sequence[ir.Node]) -> _Stamp | None:
        """The stamp of a body; None where another one would be different."""
        places: dict[ir.Value | None, _Place] = {}
        for index, value in enumerate(call.inputs):
            places.setdefault(value, _Place(_CALL, index))
        steps = []
        for number, node in enumerate(emitted):
            step = self._step(call, node, places)
            if step is None:
                return None
            steps.append(step)
            places.update((v, _Place(number, index)) for index, v in enumerate(node.outputs))
        return _Stamp(tuple(steps), tuple(places[v] for v in self._op.results))

    def _step(
        self, call: ir.Node, node: ir.Node, places: Mapping[ir.Value | None, _Place]
    ) -> _Step | None:
        if not _is_named_by(call, node) or walk.subgraphs(node) or node.device_configurations:
            return None
        if notes(node) != {STAGE: notes(call)[STAGE], SOURCE: notes(call).get(SOURCE, "")}:
            return None
        inputs: list[_Place | ir.Value | None] = []
        for value in node.inputs:
            if value is None or value in places:
                inputs.append(None if value is None else places[value])
            elif value.is_initializer():
                inputs.append(value)
            else:
                return None
        outputs = []
        for value in node.outputs:
            if value.type is None or value.shape is None or not self._is_plain(value, call):
                return None
            outputs.append((value.type, tuple(value.shape)))
        attributes = tuple(node.attributes.values())
        return _Step(node.domain, node.op_type, tuple(inputs), attributes, tuple(outputs))

    def _is_plain(self, value: ir.Value, call: ir.Node) -> bool:
        """Whether all that is known of a value is its type and a shape of the sizes of a call."""
        given = {s for v in call.inputs if v is not None for s in _symbols(v)}
        own = set(_symbols(value))
        known = value.const_value is not None or self._op.knows_elements(value)
        return own <= given - {None} and not known

    def _put(self, stamp: _Stamp, call: ir.Node) -> list[ir.Node]:
        op = self._op
        start = len(op.emitted)
        made: list[Sequence[ir.Value]] = []

        def found(place: _Place | ir.Value | None) -> ir.Value | None:
            if not isinstance(place, _Place):
                return place
            return (
                call.inputs[place.index] if place.node == _CALL else made[place.node][place.index]
            )

        source = notes(call).get(SOURCE, "")
        with op.at(call, stage=notes(call)[STAGE], source=source, prefix=call.name or ""):
            for step in stamp.steps:
                node = op.place(
                    step.domain, step.op_type, [found(p) for p in step.inputs], step.attributes,
                    len(step.outputs),
                )  # fmt: skip
                for value, (kind, dims) in zip(node.outputs, step.outputs, strict=True):
                    value.type, value.shape = kind, ir.Shape(dims)
                op.tell(node)
                made.append(node.outputs)
        op.results = tuple(made[p.node][p.index] for p in stamp.results)
        return op.emitted[start:]


def _is_named_by(call: ir.Node, node: ir.Node) -> bool:
    """Whether names are those that a builder gives by itself, on behalf of a call."""
    hint = re.escape(f"{call.name}/{node.op_type}" if call.name else node.op_type)
    own = re.fullmatch(rf"{hint}(_\d+)?", node.name or "") is not None
    return own and all(v.name == f"{node.name}:{i}" for i, v in enumerate(node.outputs))


def _symbols(value: ir.Value) -> list[str | None]:
    """The open sizes of a value; None where one has no name."""
    return [d.value for d in value.shape or () if isinstance(d, ir.SymbolicDim)]
