"""Windows in the form that every runtime reads alike: explicit pads, sizes that fit.

`auto_pad` and `output_shape` stand for pads.  Runtimes compute them otherwise than the shape
inference of ONNX does, which refuses a file whose sizes are right, and onnxruntime has no dilations
beside them in a convolution.  With `ceil_mode` a window that would begin behind the image does not
count, by the standard and in every runtime, but for that inference.

Windows over images of open sizes: pads that are known only when the model runs.

`auto_pad` SAME with a stride becomes a Pad, `output_shape` of a ConvTranspose a Slice of all that
its windows cover.
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
from gradtool.passes import lower_contrib

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


FLOATS = ("Conv", "MaxPool", "AveragePool", "LpPool")  # operators that pad with one number


def pad_open(op: Builder, node: ir.Node, kernel: Sequence[int]) -> bool:
    """Pad the image of a node with `auto_pad`; returns whether that is possible.

    Not with `ceil_mode` over dilations, whose last window may reach beyond the padding, nor for the
    places that a MaxPool returns.
    """
    given = arguments(node)
    ceil, dilated = given.get("ceil_mode"), any(d > 1 for d in given.get("dilations", ()))
    if node.op_type not in FLOATS or (ceil and dilated) or len(node.outputs) > 1:
        return False
    if node.op_type == "AveragePool" and not given.get("count_include_pad"):
        lower_contrib.replace(op, node, _average)
        return True
    with op.at(node, stage="forward", source="", prefix=node.name or ""), op.arithmetic():
        padded = _padded(op, node, as_tensor(node.inputs[0]), kernel)
    node.replace_input_with(0, padded)
    node.attributes["pads"] = attribute("pads", [0] * (2 * len(kernel)))
    for name in ("auto_pad", "ceil_mode"):
        node.attributes.pop(name, None)
    return True


def _padded(op: Builder, node: ir.Node, x: Any, kernel: Sequence[int]) -> Any:
    """The image within the border of `auto_pad`, cropped for a negative border.

    There are `ceil(size / stride)` windows.  See `Window.of` for differences of pools.
    """
    given, image, rank = arguments(node), list(x.shape[2:]), len(kernel)
    pool = node.op_type != "Conv"
    strides = given.get("strides") or [1] * rank
    apart = [1] * rank if pool else given.get("dilations") or [1] * rank
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, apart, strict=True)]
    size, last = op.size_of(x, 2, rank + 2), [s - 1 for s in strides]
    begun = op.Mul(op.Div(op.Add(size, last), [*strides]), [*strides])
    total = op.Sub(op.Add(begun, [e - s for e, s in zip(extent, strides, strict=True)]), size)
    shared = total if pool else op.Max(total, [0])
    if given["auto_pad"] == "SAME_LOWER":
        shared = op.Add(shared, [1])
    begin = op.Div(shared, [2])
    least = node.op_type == "MaxPool"
    value = op.constant(x.dtype.min, x.dtype) if least else None
    pads = op.Concat(begin, op.Sub(total, begin), axis=0)
    made = op.pad(x, pads, range(2, rank + 2), value=value)
    axes = zip(image, strides, extent, strict=True)
    whole = [((n + s - 1) // s - 1) * s + e for n, s, e in axes]
    made.shape = ir.Shape([*x.shape[:2], *whole])
    return made


def _average(op: Any, node: Any) -> Sequence[Any]:
    """An average over the image in a window: by an average of ones, both padded with zeros."""
    x, given = node.inputs[0], arguments(node)
    kernel = given["kernel_shape"]
    ones = op.Expand(
        op.constant(1.0, x.dtype), op.Concat([1, 1], op.size_of(x, 2, len(x.shape)), axis=0)
    )
    kept = {k: v for k, v in given.items() if k not in ("auto_pad", "ceil_mode", "pads")}
    kept["count_include_pad"] = 1
    whole, count = (op.AveragePool(_padded(op, node, v, kernel), **kept) for v in (x, ones))
    return [op.Div(whole, count)]


def transposed_open(op: Builder, node: ir.Node, kernel: Sequence[int]) -> None:
    """Crop an output of given size from the extent of the windows, over zeros behind the image."""

    def rule(op: Any, node: Any) -> Sequence[Any]:
        """The output in the requested size, cut from the extent of windows."""
        given, x = arguments(node), node.inputs[0]
        rank = len(kernel)
        strides = given.get("strides") or [1] * rank
        apart = given.get("dilations") or [1] * rank
        out, extra = given["output_shape"], given.get("output_padding") or [0] * rank
        axes = zip(strides, kernel, apart, strict=True)
        beyond = [(k - 1) * d + 1 - s for s, k, d in axes]
        covered = op.Add(op.Mul(op.size_of(x, 2, rank + 2), [*strides]), beyond)
        over = op.Max(op.Add(covered, [e - n for e, n in zip(extra, out, strict=True)]), [0])
        upper = given.get("auto_pad") == "SAME_UPPER"
        begin = op.Div(over if upper else op.Add(over, [1]), [2])
        end = op.Add(begin, [*out])
        more = op.Div(op.Add(op.Max(op.Sub(end, covered), [0]), [s - 1 for s in strides]),
                      [*strides])  # fmt: skip
        places = list(range(2, rank + 2))
        padded = op.pad(x, op.Concat([0] * rank, more, axis=0), places)
        padded.shape = ir.Shape([*x.shape[:2], *padded.shape[2:]])
        unsaid = ("auto_pad", "output_shape", "output_padding", "pads")
        kept = {k: v for k, v in given.items() if k not in unsaid}
        cut = op.Slice(op.ConvTranspose(padded, *node.inputs[1:], **kept), begin, end, places)
        cut.shape = ir.Shape([*cut.shape[:2], *out])
        return [cut]

    lower_contrib.replace(op, node, rule)
