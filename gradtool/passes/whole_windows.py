"""Pools with `ceil_mode` as pools without it, where a window would begin behind the image.

Such a window does not count, by the standard and in every runtime; the shape inference of ONNX
counts it, so that onnxruntime refuses a file whose sizes are right.
"""

from __future__ import annotations

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.attributes import arguments
from gradtool.graph.known import as_tensor
from gradtool.operators.windows import Window

POOLS = ("MaxPool", "AveragePool", "LpPool")


def fit_windows(op: Builder) -> int:
    """Rewrite such pools in place; returns how many there were."""
    nodes = [n for n in op.model.graph.all_nodes() if n.op_type in POOLS and not n.domain]
    return sum(_fit(op, n) for n in nodes if n.attributes.get_int("ceil_mode", 0))


def _fit(op: Builder, node: ir.Node) -> bool:
    given = arguments(node)
    if given.get("auto_pad", "NOTSET").startswith("SAME"):  # which says how many there are
        del node.attributes["ceil_mode"]
        return True
    x = node.inputs[0]
    image = [] if x is None or x.shape is None else list(x.shape[2:])
    if len(image) != len(given["kernel_shape"]):
        return False
    window = Window.of(given["kernel_shape"], image, given)
    sizes = {axis: size for axis, size in enumerate(image) if isinstance(size, int)}
    counts = {a: window.count(a, n, ceil=True) for a, n in sizes.items()}
    begun = {a: -(-window.room(a, n) // window.strides[a]) + 1 for a, n in sizes.items()}
    if counts == begun or 0 in counts.values():
        return False
    reach = {
        a: (count - 1) * window.strides[a] + window.extent[a] - window.begin[a]
        for a, count in counts.items()
    }
    if len(sizes) < len(image):  # ceil_mode stays, for the axes that are open
        _crop(op, node, window, sizes, {a: r for a, r in reach.items() if counts[a] != begun[a]})
    elif given.get("count_include_pad") and counts != {
        a: window.count(a, n) for a, n in sizes.items()
    }:
        _crop(op, node, window, sizes, reach)
    else:
        ends = [max(reach[a] - n, e) if counts[a] == begun[a] else e
                for (a, n), e in zip(sizes.items(), window.end, strict=True)]  # fmt: skip
        node.attributes["pads"] = ir.AttrInt64s("pads", [*window.begin, *ends])
        del node.attributes["ceil_mode"]
        node.attributes.pop("auto_pad", None)
    return True


def _crop(
    op: Builder, node: ir.Node, window: Window, sizes: dict[int, int], reach: dict[int, int]
) -> None:
    """Let the pool see no more than its windows do: none of them begins behind that."""
    x = as_tensor(node.inputs[0])
    with op.at(node, stage="forward", source="", prefix=node.name or ""):
        ends = [min(r, sizes[a]) for a, r in reach.items()]
        node.replace_input_with(0, op.crop(x, ends, [2 + a for a in reach]))
    pads = list(window.end)
    for axis, until in reach.items():
        pads[axis] = max(0, min(until - sizes[axis], pads[axis]))
    node.attributes["pads"] = ir.AttrInt64s("pads", [*window.begin, *pads])
    node.attributes.pop("auto_pad", None)
