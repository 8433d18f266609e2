"""Pools with `ceil_mode` as pools without it, where a window would begin behind the image.

Such a window does not count, by the standard and in every runtime; the shape inference of ONNX
counts it, so that onnxruntime refuses a file whose sizes are right.
"""

from __future__ import annotations

import onnx_ir as ir

from gradtool.attributes import arguments
from gradtool.builder import Builder
from gradtool.windows import Window

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
    sizes = [] if x is None or x.shape is None else [n for n in x.shape[2:] if isinstance(n, int)]
    if len(sizes) != len(given["kernel_shape"]):
        return False
    window = Window.of(given["kernel_shape"], sizes, given)
    counts = [window.count(a, n, ceil=True) for a, n in enumerate(sizes)]
    begun = [-(-window.room(a, n) // window.strides[a]) + 1 for a, n in enumerate(sizes)]
    if counts == begun or 0 in counts:
        return False
    reach = [c - b for c, b in zip(window.covered(counts), window.begin, strict=True)]
    if given.get("count_include_pad") and counts != [
        window.count(a, n) for a, n in enumerate(sizes)
    ]:
        _crop(op, node, window, sizes, reach)
    else:
        ends = [max(r - n, e) if c == b else e for r, n, e, c, b in zip(
            reach, sizes, window.end, counts, begun, strict=True)]  # fmt: skip
        node.attributes["pads"] = ir.AttrInt64s("pads", [*window.begin, *ends])
        del node.attributes["ceil_mode"]
        node.attributes.pop("auto_pad", None)
    return True


def _crop(op: Builder, node: ir.Node, window: Window, sizes: list[int], reach: list[int]) -> None:
    """Let the pool see no more than its windows do: none of them begins behind that."""
    x = node.inputs[0]
    assert x is not None  # noqa: S101 - its sizes are known
    with op.at(node, stage="forward", source="", prefix=node.name or ""):
        ends = [min(r, n) for r, n in zip(reach, sizes, strict=True)]
        node.replace_input_with(0, op.crop(x, ends, range(2, 2 + window.rank)))
    pads = [max(0, min(r - n, e)) for r, n, e in zip(reach, sizes, window.end, strict=True)]
    node.attributes["pads"] = ir.AttrInt64s("pads", [*window.begin, *pads])
    node.attributes.pop("auto_pad", None)
