"""Key/value caches of decoders, found by what they are.

A cache is an input, and an output that is this input grown along one open axis: by what attention
or a Concat adds, something computed.  That is followed through the graph; names decide only which
of several outputs goes with which input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from gradtool.graph import walk
from gradtool.graph.composites import DOMAIN
from gradtool.graph.predicates import NO_DATA
from gradtool.graph.prune import inner_nodes

SAME = ("Identity", "Cast")
ATTENTION = {("", "Attention"), (DOMAIN, "ScaledAttention")}
PAST, LENGTH = (4, 5), 2  # of attention: inputs that outputs 1 and 2 grow by inputs 1 and 2; axis
LONGEST = 1 << 16  # characters of names that are compared


@dataclass(frozen=True)
class Cache:
    """An input, the name of the output that is this input grown, and the axis."""

    before: ir.Value
    after: str
    axis: int


def find(graph: ir.Graph) -> list[Cache]:
    """The caches of a graph; none where no other input or output would be left.

    What is added to one depends on nothing that it holds, unlike a series that a model continues.
    """
    inputs = [v for v in graph.inputs if not v.is_initializer() and v.shape is not None]
    grown = [(each, after.name or "") for after in graph.outputs for each in _grown(after)]
    if not grown:
        return []
    reads = _reads(graph, inputs)
    found = [
        Cache(each.before, after, each.axis)
        for each, after in grown
        if each.before in inputs
        and each.own == each.axis > 0  # the first axis is of examples
        and isinstance(sizes_of(each.before)[each.axis], ir.SymbolicDim)
        and all(_is_new(v, reads, each.before) for v in each.by)
    ]
    caches: list[Cache] = []
    before, after = set[ir.Value](), set[str]()
    for cache in sorted(found, key=_unlike):
        if cache.before not in before and cache.after not in after:
            caches.append(cache)
            before.add(cache.before)
            after.add(cache.after)
    is_left = len(before) < len(inputs) and len(after) < len(graph.outputs)
    order = {value: n for n, value in enumerate(inputs)}
    return sorted(caches, key=lambda cache: order[cache.before]) if is_left else []


def _is_new(value: ir.Value, reads: Mapping[ir.Value, int], before: ir.Value) -> bool:
    """Whether a value is computed from inputs, but not from what an input holds."""
    return value.producer() is not None and not reads.get(value, 0) & reads[before]


def sizes_of(value: ir.Value) -> Sequence[int | ir.SymbolicDim]:
    assert value.shape is not None  # noqa: S101 - inputs without are no caches
    return list(value.shape)


def _unlike(cache: Cache) -> int:
    """Less, the longer the end is that both names have: `past.0.key` goes with `present.0.key`."""
    names = (reversed(name) for name in (cache.before.name or "", cache.after))
    pairs = enumerate(zip(*names, strict=False))
    return -next((n for n, (a, b) in pairs if a != b), LONGEST)


def _reads(graph: ir.Graph, inputs: Sequence[ir.Value]) -> dict[ir.Value, int]:
    """By value the inputs whose elements it depends on, as bits."""
    bits = {value: 1 << n for n, value in enumerate(inputs)}
    for node in walk.nodes(graph):
        found = 0
        for reader in () if node.op_type in NO_DATA else (node, *inner_nodes(node)):
            for value in reader.inputs:
                found |= bits.get(value, 0) if value is not None else 0
        bits.update(dict.fromkeys(node.outputs, found))
    return bits


@dataclass(frozen=True)
class _Grown:
    """An input inside of a value: the axes of both along which it grew, and by what."""

    before: ir.Value
    own: int
    axis: int
    by: tuple[ir.Value, ...]


def _grown(value: ir.Value) -> Iterator[_Grown]:
    """The inputs that a value is, grown."""
    node = value.producer()
    if node is None:
        return
    if is_layout(node) and node.inputs[0] is not None:
        for each in _grown(node.inputs[0]):
            yield replace(each, axis=perm_of(node, len(sizes_of(each.before))).index(each.axis))
    elif node.op_type == "If" and not node.domain:
        for branch in walk.subgraphs(node):
            yield from _grown(branch.outputs[value.index() or 0])
    elif node.op_type == "Concat" and not node.domain:
        axis = node.attributes["axis"].as_int()
        slots = range(len(node.inputs))
        for slot in slots:
            yield from _grown_by(node, slot, axis, [n for n in slots if n != slot])
    elif (node.domain, node.op_type) in ATTENTION and len(node.inputs) > max(PAST):
        index = value.index()
        if index:
            yield from _grown_by(node, PAST[index - 1], LENGTH, [index])


def _grown_by(node: ir.Node, slot: int, axis: int, added: Sequence[int]) -> Iterator[_Grown]:
    """The input of the model in a slot, laid out otherwise perhaps, by what others add."""
    value, layouts = node.inputs[slot], list[ir.Node]()
    while value is not None and (layout := value.producer()) is not None and is_layout(layout):
        layouts.append(layout)
        value = layout.inputs[0]
    if value is None or not value.is_graph_input() or not value.shape:
        return
    rank = len(value.shape)
    own = axis % rank
    for layout in layouts:
        own = perm_of(layout, rank)[own]
    by = (node.inputs[n] for n in added)
    yield _Grown(value, own, axis % rank, tuple(v for v in by if v is not None))


def is_layout(node: ir.Node) -> bool:
    """Whether a node has the elements of its first operand alone, perhaps in another order."""
    lone = node.op_type == "Concat" and len(node.inputs) == 1
    return not node.domain and (lone or node.op_type in (*SAME, "Transpose"))


def perm_of(node: ir.Node, rank: int) -> Sequence[int]:
    """By axis of the result that of the operand."""
    turned = tuple(reversed(range(rank))) if node.op_type == "Transpose" else tuple(range(rank))
    return node.attributes.get_ints("perm", turned)
