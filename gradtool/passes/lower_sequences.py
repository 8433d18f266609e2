"""Sequences of known structure replaced by tensors.

    s = SequenceConstruct (a, b)    y = SequenceAt (s, 1)           →  y is b
    s = SplitToSequence (x)         y = ConcatFromSequence (s)      →  Split, Concat

A sequence is known where the number of its elements and all positions are.  An unknown one stays as
it is, and is differentiated as a sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import ModelError
from gradtool.graph import walk
from gradtool.graph.metadata import STAGE
from gradtool.graph.names import label
from gradtool.graph.predicates import is_tensor
from gradtool.graph.prune import drop_unread, succeed
from gradtool.graph.typed import as_tensor
from gradtool.ops.control.gradient_bodies import copy, is_random

# A map over more elements stays a map.
MOST_COPIES = 64

Known = dict[ir.Value, list[ir.Value]]


def lower_sequences(op: Builder) -> int:
    """Rewrite the builder's model in place; returns the number of replaced values.

    Dead values are left to be pruned.
    """
    known: Known = {}
    present: dict[ir.Value, ir.Value | None] = {}
    count = 0
    for graph in walk.graphs(op.model.graph):
        for node in list(graph):
            if node.domain:
                continue
            with op.at(node, stage="forward", source="", prefix=node.name or node.op_type):
                count += _optional(op, node, present)
                rule = RULES.get(node.op_type)
                if rule is not None:
                    count += rule(op, node, known)
        if graph is not op.model.graph:  # which is pruned later
            drop_unread(graph)
    return count


def _constant(value: ir.Value | None) -> Any:
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def _replace(value: ir.Value, by: ir.Value) -> int:
    """Let readers of a value read another; a graph output keeps its name."""
    if value.name and value.is_graph_output():
        return 0
    value.replace_all_uses_with(by)
    return 1


def _result(op: Builder, value: ir.Value, by: ir.Value) -> int:
    """Let another value stand for one, as an output too."""
    if not value.is_graph_output():
        return _replace(value, by)
    made = op.Identity(by)
    made.shape = value.shape if value.shape is not None else made.shape
    succeed(made, value)
    return 1


# --------------------------------------------------------------------------- optionals


def _optional(op: Builder, node: ir.Node, present: dict[ir.Value, ir.Value | None]) -> int:
    x = node.inputs[0] if node.inputs else None
    if node.op_type == "Optional":
        present[node.outputs[0]] = x
    elif node.op_type == "OptionalGetElement" and x is not None:
        inner = present.get(x, None if isinstance(x.type, ir.OptionalType) else x)
        return 0 if inner is None else _result(op, node.outputs[0], inner)
    elif node.op_type == "OptionalHasElement":
        if x is None or x in present:
            there = x is not None and present[x] is not None
            return _result(op, node.outputs[0], op.constant(np.asarray(there)))
        if not isinstance(x.type, ir.OptionalType):
            return _result(op, node.outputs[0], op.constant(np.asarray(True)))
    return 0


# --------------------------------------------------------------------------- sequences


def _construct(_op: Builder, node: ir.Node, known: Known) -> int:
    known[node.outputs[0]] = [v for v in node.inputs if v is not None]
    return 0


def _identity(_op: Builder, node: ir.Node, known: Known) -> int:
    source = node.inputs[0]
    if source is not None and source in known:
        known[node.outputs[0]] = known[source]
    return 0


def _position(node: ir.Node, slot: int, default: int | None) -> int | None:
    """A constant position; `default` where there is none, None where it isn't known."""
    value = node.inputs[slot] if slot < len(node.inputs) else None
    if value is None:
        return default
    found = _constant(value)
    return None if found is None else int(found.reshape(-1)[0])


def _insert(_op: Builder, node: ir.Node, known: Known) -> int:
    source, tensor = node.inputs[:2]
    if source in known and tensor is not None:
        made = list(known[source])
        place = _position(node, 2, len(made))
        if place is not None and -len(made) <= place <= len(made):
            made.insert(place, tensor)
            known[node.outputs[0]] = made
    return 0


def _erase(_op: Builder, node: ir.Node, known: Known) -> int:
    source = node.inputs[0]
    if source in known:
        made = list(known[source])
        place = _position(node, 1, -1)
        if place is not None and -len(made) <= place < len(made):
            del made[place]
            known[node.outputs[0]] = made
    return 0


def _at(op: Builder, node: ir.Node, known: Known) -> int:
    elements = known.get(node.inputs[0]) if node.inputs[0] is not None else None
    place = _position(node, 1, None)
    if elements is None or place is None or not -len(elements) <= place < len(elements):
        return 0
    return _result(op, node.outputs[0], elements[place])


def _length(op: Builder, node: ir.Node, known: Known) -> int:
    elements = known.get(node.inputs[0]) if node.inputs[0] is not None else None
    if elements is None:
        return 0
    return _result(op, node.outputs[0], op.constant(np.asarray(len(elements), dtype=np.int64)))


def _split(op: Builder, node: ir.Node, known: Known) -> int:
    x = node.inputs[0]
    if x is None or not x.shape:
        return 0
    axis = node.attributes.get_int("axis", 0) % len(x.shape)
    given = node.inputs[1] if len(node.inputs) > 1 else None
    sizes = _part_sizes(x.shape[axis], given)
    if sizes is None:
        return 0
    parts = _parts(op, x, sizes, axis)
    if given is None and not node.attributes.get_int("keepdims", 1):
        parts = [op.squeeze(as_tensor(part), axis) for part in parts]
    known[node.outputs[0]] = parts
    return 0


def _parts(op: Builder, x: ir.Value, sizes: list[int], axis: int) -> list[ir.Value]:
    if len(sizes) == 1:
        return [x]
    return list(op.Split(x, sizes, axis=axis, outputs=len(sizes)))


def _part_sizes(size: int | ir.SymbolicDim, given: ir.Value | None) -> list[int] | None:
    split = _constant(given)
    if given is None and isinstance(size, int):
        return [1] * size or None
    if split is None:
        return None
    if split.ndim:
        return [int(n) for n in split] or None
    step = int(split)
    if not isinstance(size, int) or step < 1:
        return None
    return [min(step, size - start) for start in range(0, size, step)] or None


def _concat(op: Builder, node: ir.Node, known: Known) -> int:
    elements = known.get(node.inputs[0]) if node.inputs[0] is not None else None
    if not elements or any(v.shape is None for v in elements):
        return 0
    axis = node.attributes["axis"].as_int()
    if node.attributes.get_int("new_axis", 0):
        axis %= len(elements[0].shape or ()) + 1
        elements = [op.unsqueeze(as_tensor(v), axis) for v in elements]
    else:
        if not elements[0].shape:
            raise ModelError(f"{label(node)}: scalars have no axis to join")
        axis %= len(elements[0].shape)
    return _result(op, node.outputs[0], op.concat([as_tensor(v) for v in elements], axis))


def _map(op: Builder, node: ir.Node, known: Known) -> int:
    """Copy the body once per element."""
    if node.inputs[0] not in known or is_random(node):
        return 0
    if any(v is not None and not is_tensor(v) and v not in known for v in node.inputs):
        return 0
    count = len(known[node.inputs[0]])
    if not 0 < count <= MOST_COPIES:
        return 0
    body = node.attributes["body"].as_graph()
    made: list[list[ir.Value]] = [[] for _ in body.outputs]
    for turn in range(count):
        inner: dict[ir.Value, ir.Value] = {}
        for formal, value in zip(body.inputs, node.inputs, strict=True):
            if value is not None:
                inner[formal] = known[value][turn] if value in known else value
        start = len(op.emitted)
        for each in body:
            _copy_before(op, each, inner, node)
        del op.emitted[start:]
        for results, output in zip(made, body.outputs, strict=True):
            results.append(inner.get(output, output))
    known.update(zip(node.outputs, made, strict=True))
    return 0


def _copy_before(
    op: Builder, node: ir.Node, known: dict[ir.Value, ir.Value], place: ir.Node
) -> None:
    copy(op, node, known)
    made = op.graph[-1]
    op.graph.remove(made)
    op.graph.insert_before(place, made)
    made.metadata_props[STAGE] = "forward"


RULES: dict[str, Callable[[Builder, ir.Node, Known], int]] = {
    "ConcatFromSequence": _concat,
    "Identity": _identity,
    "SequenceAt": _at,
    "SequenceConstruct": _construct,
    "SequenceEmpty": _construct,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SequenceMap": _map,
    "SplitToSequence": _split,
}
