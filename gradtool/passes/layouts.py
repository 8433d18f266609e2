"""Layout operators: backward can repeat them instead of keeping both values."""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir

from gradtool.graph.metadata import SOURCE, STAGE
from gradtool.graph.names import Names
from gradtool.graph.stages import is_backward
from gradtool.ops import kernels

GAPLESS = ("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")
STRIDED = ("Slice", "Split", "Transpose")


def storages(model: ir.Model) -> Callable[[ir.Value], ir.Value]:
    """A function from a value to the source of its bytes: itself, or the base of a layout.

    Results are cached: they hold while the model stays as it is.
    """
    known: dict[ir.Value, ir.Value] = {}

    def storage(value: ir.Value) -> ir.Value:
        layouts = [value]
        while (last := layouts[-1]) not in known:
            node = last.producer()
            if node is None or not is_layout(model, node):
                known[last] = last
            else:
                assert node.inputs[0] is not None  # noqa: S101 - a layout is one of something
                layouts.append(node.inputs[0])
        known.update(dict.fromkeys(layouts, known[last]))
        return known[last]

    return storage


def is_layout(model: ir.Model, node: ir.Node) -> bool:
    """Whether a node may be repeated wherever its result is read, at no cost in memory.

    An operator whose result has gaps is one only if all readers take these.  Otherwise the executor
    makes a gapless array of it, which has to be saved: the bits of a matrix product depend on how
    its operands lie.
    """
    if node.domain not in ("", "ai.onnx") or node.op_type not in GAPLESS + STRIDED:
        return False
    if node.inputs[0] is None or any(v.is_graph_output() for v in node.outputs):
        return False
    if any(v is not None and v.const_value is None for v in node.inputs[1:]):
        return False
    users = [use.node for v in node.outputs for use in v.uses()]
    if any(user.graph is not model.graph for user in users):
        return False
    return node.op_type in GAPLESS or all(_takes_gaps(model, user) for user in users)


def is_returned(value: ir.Value) -> bool:
    """Whether the model returns a value, as it is or in another layout."""
    return value.is_graph_output() or any(
        use.node.op_type in GAPLESS and use.idx == 0 and is_returned(use.node.outputs[0])
        for use in value.uses()
    )


def _takes_gaps(model: ir.Model, node: ir.Node) -> bool:
    version = model.graph.opset_imports.get(node.domain, 1)
    kernel = kernels.find(node.domain, node.op_type, version)
    return kernel is not None and kernel.strided


def repeat_layouts(model: ir.Model) -> None:
    """Give backward its own copy of the layout operators whose results it reads."""
    graph, names = model.graph, Names.of(model)
    place: dict[ir.Node, tuple[float, ...]] = {n: (i, math.inf) for i, n in enumerate(graph)}
    for node in reversed(list(graph)):
        if is_backward(node) or not is_layout(model, node):
            continue
        uses = [u for v in node.outputs for u in v.uses() if u.node in place]
        uses = [u for u in uses if is_backward(u.node)]
        if not uses:
            continue
        first = min((u.node for u in uses), key=place.__getitem__)
        copy = _copy(node, names)
        graph.insert_before(first, copy)
        # Behind nodes put before `first` earlier, and before `first` itself.
        place[copy] = (*place[first][:-1], len(place), math.inf)
        for old, new in zip(node.outputs, copy.outputs, strict=True):
            for use in list(old.uses()):
                if use.node in place and use.node is not copy and is_backward(use.node):
                    use.node.replace_input_with(use.idx, new)


def _copy(node: ir.Node, names: Names) -> ir.Node:
    from gradtool.emit.clones import clone

    metadata = {STAGE: "backward", SOURCE: node.name or ""}
    return clone(node, names, "/again", metadata, value_suffix="_again")
