"""Windows over images of open sizes: pads that are known only when the model runs.

`auto_pad` SAME with a stride becomes a Pad, `output_shape` of a ConvTranspose a Slice of all that
its windows cover.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.attributes import arguments, attribute
from gradtool.graph.typed import as_tensor
from gradtool.passes import lower_contrib

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
