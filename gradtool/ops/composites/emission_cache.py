"""Emissions of nodes that are alike: emitted once, and stamped from then on.

The layers of a model repeat, and so do their gradients, and the calls in these.  The body of a call
is a function of its attributes and of the reads of its emission (`gradtool.emit.reads`), and so is
the emission of a rule.  It is stamped where its nodes read nothing else, and none of their
results is a size, of which the builder knows more than type and shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.emit.reads import Question, Reads, Values, answers
from gradtool.graph import walk
from gradtool.graph.metadata import SOURCE, STAGE, notes
from gradtool.shapes.memo import free_symbols

Questions = tuple[Question, ...]
_NUMBER = re.compile(r"_\d+")
# So many sets of questions are kept of one call: those of open sizes name them, and never recur.
_MOST_ASKED = 16


@dataclass(frozen=True)
class _Step:
    """An emitted node; its operands by their places among the values of a `_Stamp`."""

    domain: str
    op_type: str
    inputs: tuple[int, ...]
    attributes: tuple[ir.Attr, ...]
    outputs: tuple[tuple[ir.TypeProtocol, ir.Shape], ...]  # shared by all that are stamped


@dataclass(frozen=True)
class _Stamp:
    """Nodes in order, and the places of the results.

    Values are counted: the fixed ones (constants and the absent one), the given ones, and the
    outputs of one node after the other.
    """

    fixed: tuple[ir.Value | None, ...]
    steps: tuple[_Step, ...]
    results: tuple[int, ...]


class Stamps:
    """Emitter of functions of nodes and values, anew or by their stamps."""

    def __init__(self, op: Builder) -> None:
        self._op = op
        # By call: the questions that emissions asked, and by the answers what was emitted.
        self._known: dict[Hashable, dict[Questions, dict[Hashable, _Stamp | None]]] = {}

    def emit(self, node: ir.Node, given: Values, by: Callable[[], Values]) -> Values:
        """Emit by `by`, or stamp its earlier emission for an equal node; return the results.

        `by` is a function of the node's call and of the reads of `given` recorded by `Reads`.
        """
        key = self._key(node, given)
        if key is None:
            return by()
        known = self._known.setdefault(key, {})
        for questions, stamps in known.items():
            told = answers(self._op, given, questions)
            if told in stamps:
                stamp = stamps[told]
                return by() if stamp is None else self._put(stamp, given)
        if len(known) == _MOST_ASKED:
            return by()
        start = len(self._op.emitted)
        reads = Reads(self._op, given)
        with reads.of(node):
            results = by()
        questions = reads.questions
        told = answers(self._op, given, questions)
        closed = reads.closed or self._key(node, given) != key
        emitted = self._op.emitted[start:]
        stamp = None if closed else self._taken(given, emitted, results)
        known.setdefault(questions, {})[told] = stamp
        return results

    def _key(self, node: ir.Node, given: Values) -> Hashable | None:
        """Key of a call, looked at before any value; None if calls cannot be compared."""
        op = self._op
        call = op.call(node)
        if call is None:
            return None
        first: dict[ir.Value | None, int] = {}
        same = [None if v is None else first.setdefault(v, i) for i, v in enumerate(given)]
        return call, tuple(same), op.stage, op.ste, op.in_pieces

    def _taken(self, given: Values, emitted: Sequence[ir.Node], results: Values) -> _Stamp | None:
        """The stamp of an emission; None if another emission would differ."""
        read = {v: None for node in emitted for v in node.inputs if v is not None}
        own = {*given}
        fixed = (None, *(v for v in read if v.is_initializer() and v not in own))
        places: dict[ir.Value | None, int] = {}
        for place, value in enumerate((*fixed, *given)):
            places.setdefault(value, place)
        sizes = {s for v in given if v is not None for s in free_symbols(v.shape or ())}
        sizes -= {ir.SymbolicDim(None)}
        steps, there = [], len(fixed) + len(given)
        for node in emitted:
            step = self._step(node, places, sizes)
            if step is None:
                return None
            steps.append(step)
            places.update((v, there + index) for index, v in enumerate(node.outputs))
            there += len(node.outputs)
        if not all(v in places for v in results):
            return None
        return _Stamp(fixed, tuple(steps), tuple(places[v] for v in results))

    def _step(
        self, node: ir.Node, places: Mapping[ir.Value | None, int], sizes: set[Any]
    ) -> _Step | None:
        op = self._op
        if not self._is_plain(node) or notes(node) != {STAGE: op.stage, SOURCE: op.source}:
            return None
        if not all(v in places for v in node.inputs):
            return None
        outputs = []
        for value in node.outputs:
            if value.type is None or value.shape is None:
                return None
            if not free_symbols(value.shape) <= sizes:
                return None
            if value.const_value is not None or op.knows_elements(value):
                return None
            outputs.append((value.type, ir.Shape(value.shape, frozen=True)))
        inputs, attributes = tuple(places[v] for v in node.inputs), tuple(node.attributes.values())
        return _Step(node.domain, node.op_type, inputs, attributes, tuple(outputs))

    def _is_plain(self, node: ir.Node) -> bool:
        """Whether a node has only the facts the builder gives by itself, names included."""
        prefix = self._op.prefix
        hint = f"{prefix}/{node.op_type}" if prefix else node.op_type
        name = node.name or ""
        number = name.removeprefix(hint)
        own = name.startswith(hint) and (not number or _NUMBER.fullmatch(number) is not None)
        own = own and all(v.name == f"{node.name}:{i}" for i, v in enumerate(node.outputs))
        return own and not walk.subgraphs(node) and not node.device_configurations

    def _put(self, stamp: _Stamp, given: Values) -> Values:
        op = self._op
        there = [*stamp.fixed, *given]
        for step in stamp.steps:
            inputs = [there[place] for place in step.inputs]
            node = op.place(step.domain, step.op_type, inputs, step.attributes, step.outputs)
            op.tell(node)
            there += node.outputs
        return [there[place] for place in stamp.results]
