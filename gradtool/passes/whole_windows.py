"""Windows in the form that every runtime reads alike: explicit pads, sizes that fit.

`auto_pad` and `output_shape` stand for pads.  Runtimes compute them otherwise than the shape
inference of ONNX does, which refuses a file whose sizes are right, and onnxruntime has no dilations
beside them in a convolution.  With `ceil_mode` a window that would begin behind the image does not
count, by the standard and in every runtime, but for that inference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph import walk
from gradtool.graph.attributes import arguments, attribute
from gradtool.graph.typed import as_tensor
from gradtool.operators.windows import Window, transposed

POOLS = ("MaxPool", "AveragePool", "LpPool")
WEIGHTS = {"Conv": 1, "ConvTranspose": 1, "ConvInteger": 1, "QLinearConv": 3}  # by operator: where


def fit_windows(op: Builder) -> int:
    """Rewrite the nodes in need of it in place; returns their number.

    Pads that depend on an unknown size become operators.
    """
    return sum(_fit(op, n) for n in walk.nodes(op.model.graph) if n.domain in ("", "ai.onnx"))


def _fit(op: Builder, node: ir.Node) -> bool:
    given = arguments(node)
    image = _spatial(node.inputs[0]) if node.op_type in (*POOLS, *WEIGHTS) else None
    if image is None:
        return False
    if node.op_type in POOLS:
        return len(image) == len(given["kernel_shape"]) and _fit_pool(op, node, image, given)
    kernel = _spatial(node.inputs[WEIGHTS[node.op_type]])
    if kernel is None or not all(isinstance(n, int) for n in kernel):
        return False
    if node.op_type == "ConvTranspose":
        return _fit_transposed(op, node, kernel, image, given)
    if given.get("auto_pad", "NOTSET") == "NOTSET":
        return False
    try:
        window = Window.of(kernel, image, given)
    except ValueError:
        from gradtool.passes.open_windows import pad_open

        return pad_open(op, node, kernel)
    _set_pads(node, window.begin, window.end)
    return True


def _spatial(value: ir.Value | None) -> list[Any] | None:
    """The sizes behind the first two, None if the rank is unknown or less."""
    shape = None if value is None else value.shape
    return None if shape is None or len(shape) <= 2 else list(shape[2:])


def _set_pads(node: ir.Node, begin: Sequence[int], end: Sequence[int]) -> None:
    node.attributes["pads"] = attribute("pads", [*begin, *end])
    node.attributes.pop("auto_pad", None)


def _fit_transposed(
    op: Builder, node: ir.Node, kernel: list[int], image: list[Any], given: dict[str, Any]
) -> bool:
    """Explicit pads and `output_padding` in place of `auto_pad` and `output_shape`.

    onnxruntime adds less than a stride behind the windows: more of it is the windows over zeros
    behind the image.
    """
    out = given.get("output_shape", ())
    try:
        window, extra = transposed(kernel, image, out, given)
    except ValueError:
        from gradtool.passes.open_windows import transposed_open

        transposed_open(op, node, kernel)
        return True
    more = [e // s for e, s in zip(extra, window.strides, strict=True)]
    if given.get("auto_pad", "NOTSET") == "NOTSET" and not out and not any(more):
        return False
    if any(more):
        axes = [2 + axis for axis, count in enumerate(more) if count]
        ends = [count for count in more if count]
        with op.at(node, stage="forward", source="", prefix=node.name or ""):
            padded = op.pad(as_tensor(node.inputs[0]), [*[0] * len(ends), *ends], axes)
        node.replace_input_with(0, padded)
    rest = [e % s for e, s in zip(extra, window.strides, strict=True)]
    node.attributes["output_padding"] = attribute("output_padding", rest)
    node.attributes.pop("output_shape", None)
    _set_pads(node, window.begin, window.end)
    return True


def _fit_pool(op: Builder, node: ir.Node, image: list[Any], given: dict[str, Any]) -> bool:
    padded = given.get("auto_pad", "NOTSET") != "NOTSET"
    try:
        window = Window.of(given["kernel_shape"], image, given, pool=True)
    except ValueError:
        from gradtool.passes.open_windows import pad_open

        return pad_open(op, node, given["kernel_shape"])
    if padded:
        window = _cut(op, node, window, image)
    return _fit_last(op, node, window, given) or padded


def _cut(op: Builder, node: ir.Node, window: Window, image: list[Any]) -> Window:
    """Nonnegative pads, over the image cropped by the negative ones.

    An average sees nothing of its cropped part behind, others may with `ceil_mode`.
    """
    ceil = bool(node.attributes.get_int("ceil_mode", 0))
    begin, end = ([max(0, n) for n in pads] for pads in (window.begin, window.end))
    starts, ends = {}, {}
    for axis, pads in enumerate(zip(window.begin, window.end, strict=True)):
        if min(pads) < 0:  # such pads follow from known sizes
            seen = image[axis] + min(0, pads[1])
            if ceil and node.op_type != "AveragePool":
                last = (window.count(axis, image[axis], ceil=True) - 1) * window.strides[axis]
                reach = last + window.extent[axis] - pads[0]
                seen = min(image[axis], reach)
                end[axis] = reach - seen
            starts[axis], ends[axis] = max(0, -pads[0]), seen
    if starts:
        axes = [2 + axis for axis in starts]
        with op.at(node, stage="forward", source="", prefix=node.name or ""):
            part = op.Slice(node.inputs[0], [*starts.values()], [*ends.values()], axes)
        node.replace_input_with(0, part)
    _set_pads(node, begin, end)
    return Window(window.kernel, window.strides, window.dilations, tuple(begin), tuple(end))


def _fit_last(op: Builder, node: ir.Node, window: Window, given: dict[str, Any]) -> bool:
    """Drop windows that `ceil_mode` counts too many; returns whether there are any."""
    image = _spatial(node.inputs[0])
    if not given.get("ceil_mode") or image is None:
        return False
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
        return True
    ends = [max(reach[a] - n, e) if counts[a] == begun[a] else e
            for (a, n), e in zip(sizes.items(), window.end, strict=True)]  # fmt: skip
    floors = {a: window.count(a, n) for a, n in sizes.items()}
    far = any(e >= k for e, k in zip(ends, window.kernel, strict=True))  # runtimes refuse it
    if far or (given.get("count_include_pad") and counts != floors):
        _crop(op, node, window, sizes, reach)
    else:
        _set_pads(node, window.begin, ends)
        del node.attributes["ceil_mode"]
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
    _set_pads(node, window.begin, pads)
