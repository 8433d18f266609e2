"""Redirection of backward's reads of sizes from otherwise dead values to live ones."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from gradtool.graph.predicates import is_tensor
from gradtool.graph.reads import reads
from gradtool.graph.stages import is_backward
from gradtool.passes.layouts import storages
from gradtool.passes.masks import choice_of

Dims = tuple[int | str, ...]


def redirect_shape_reads(model: ir.Model) -> int:
    """Let backward read provably equal sizes off values that it keeps anyway.

    The other value is one that backward reads later than the size, or an input or a parameter, so
    that nothing lives longer.  Returns how many nodes ask another value.
    """
    nodes = [node for node in model.graph if is_backward(node)]
    asking = {node: asked for node in nodes if asks_sizes(node) and (asked := _asked(node))}
    if not asking:
        return 0
    place = {node: index for index, node in enumerate(nodes)}
    last = _last_reads(nodes)
    where = _index(last, set(asking.values()))
    kept = {*map(storages(model), last)}
    count = 0
    for node, asked in asking.items():
        (value,) = node.inputs
        if value is None or storages(model)(value) in kept or not _is_saved(value):
            continue
        for other, first in where.get(asked, ()):
            if other.producer() is None or last[other] > place[node]:
                _ask(node, other, first, len(asked))
                count += 1
                break
    return count


def _last_reads(nodes: list[ir.Node]) -> dict[ir.Value, int]:
    """The values read by backward for more than a choice or a size, and their last readers."""
    found: dict[ir.Value, int] = {}
    for index, node in enumerate(nodes):
        if not asks_sizes(node) and choice_of(node) is None:
            found.update((v, index) for v in reads(node) if not _is_made(v))
    return found


def _index(
    values: dict[ir.Value, int], wanted: set[Dims]
) -> dict[Dims, list[tuple[ir.Value, int]]]:
    """By wanted neighbouring sizes, the values with them, and the first axis of each."""
    found: dict[Dims, list[tuple[ir.Value, int]]] = {}
    counts = sorted({len(dims) for dims in wanted})
    for value in filter(is_tensor, values):  # the shape of a sequence is that of its elements
        dims = tuple(_dims(value))
        for first in range(len(dims)):
            for count in counts:
                part = dims[first : first + count]
                if len(part) == count and part in wanted:
                    found.setdefault(part, []).append((value, first))
    return found


def _dims(value: ir.Value) -> Iterator[int | str]:
    """The sizes of a value; one without a name is equal to no other."""
    for axis, dim in enumerate(value.shape or ()):
        if isinstance(dim, int):
            yield dim
        else:
            yield f"{value.name}[{axis}]" if dim.value is None else dim.value


def _asked(node: ir.Node) -> Dims:
    """The sizes given by a Shape node; none for Size, which multiplies them."""
    (value,) = node.inputs
    if node.op_type != "Shape" or value is None or value.shape is None:
        return ()
    rank = len(value.shape)
    start, stop, _ = slice(
        node.attributes.get_int("start", 0), node.attributes.get_int("end", rank)
    ).indices(rank)
    return tuple(_dims(value))[start:stop]


def _ask(node: ir.Node, other: ir.Value, first: int, count: int) -> None:
    node.replace_input_with(0, other)
    node.attributes["start"] = ir.AttrInt64("start", first)
    node.attributes["end"] = ir.AttrInt64("end", first + count)


def asks_sizes(node: ir.Node) -> bool:
    """Whether a node gives sizes of its input and reads nothing else of it."""
    return node.domain in ("", "ai.onnx") and node.op_type in ("Shape", "Size")


def _is_saved(value: ir.Value) -> bool:
    return value.producer() is not None and not _is_made(value)


def _is_made(value: ir.Value) -> bool:
    """Whether backward computes a value."""
    node = value.producer()
    return node is not None and is_backward(node)
