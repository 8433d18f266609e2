"""Sliding windows of Conv, ConvTranspose and the pooling operators, and rules of their shapes.

The rules of onnx-shape-inference 0.4 have no floor in sizes, nor windows that don't fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from gradtool.graph.attributes import arguments

Ints = tuple[int, ...]
PADDINGS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


@dataclass(frozen=True)
class Window:
    """A window of `kernel` taps, `dilations` apart, that moves by `strides` over a padded image."""

    kernel: Ints
    strides: Ints
    dilations: Ints
    begin: Ints
    end: Ints

    @classmethod
    def of(
        cls,
        kernel: Sequence[int],
        sizes: Sequence[Any],
        given: Mapping[str, Any],
        *,
        pool: bool = False,
    ) -> Window:
        """The window of a node over an image of `sizes`, its `auto_pad` resolved.

        Where it is `SAME`, a `pool` pads as onnxruntime does: as if it had no dilations, and by
        less than nothing where the kernel is smaller than the stride.

        Raises:
            ValueError: the pads depend on a size that is unknown, or on no known `auto_pad`.
        """
        rank = len(kernel)
        strides = tuple(given.get("strides") or (1,) * rank)
        dilations = tuple(given.get("dilations") or (1,) * rank)
        pads = tuple(given.get("pads") or (0,) * (2 * rank))
        mode = given.get("auto_pad") or "NOTSET"
        if mode not in PADDINGS:
            raise ValueError(f"auto_pad {mode!r} must be one of {', '.join(PADDINGS)}")
        if mode == "VALID":
            pads = (0,) * (2 * rank)
        elif mode != "NOTSET":
            apart = (1,) * rank if pool else dilations
            extent = [(k - 1) * d + 1 for k, d in zip(kernel, apart, strict=True)]
            total = [same_pads(*item) for item in zip(sizes, extent, strides, strict=True)]
            total = total if pool else [max(0, t) for t in total]
            pads = share_pads(total, upper=mode == "SAME_UPPER")
        return cls(tuple(kernel), strides, dilations, pads[:rank], pads[rank:])

    @property
    def rank(self) -> int:
        """The number of spatial axes."""
        return len(self.kernel)

    @property
    def extent(self) -> Ints:
        """The elements from the first tap to the last one, along each axis."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def covered(self, out: Sequence[int]) -> Ints:
        """The elements that `out` windows touch or step over, along each axis."""
        return tuple(
            (o - 1) * s + e for o, s, e in zip(out, self.strides, self.extent, strict=True)
        )

    def room(self, axis: int, size: int) -> int:
        """Elements behind the first window along an axis of `size`; negative if it sticks out."""
        return size + self.begin[axis] + self.end[axis] - self.extent[axis]

    def count(self, axis: int, size: int, *, ceil: bool = False) -> int:
        """The windows along an axis of `size`; with `ceil` the last may reach beyond the padding.

        None begins there.  Negative where the image is smaller yet than it is for none.
        """
        begin, stride = self.begin[axis], self.strides[axis]
        room = self.room(axis, size)
        count = (-(-room // stride) if ceil else room // stride) + 1
        return count - (ceil and (count - 1) * stride >= size + begin)

    @property
    def attributes(self) -> dict[str, Any]:
        """Strides, dilations and explicit pads, as ONNX attributes."""
        return {"strides": self.strides, "dilations": self.dilations, "pads": self.begin + self.end}


def same_pads(size: Any, extent: int, stride: int) -> int:
    """The padding along one axis with which there are `ceil(size / stride)` windows.

    Negative where the last of them would end before the image does.
    """
    if stride == 1:
        return extent - 1
    if not isinstance(size, int):
        raise ValueError(  # noqa: TRY004 - the size is missing, not of a wrong type
            "auto_pad=SAME with a stride needs a known size; give it with --dim"
        )
    needed: int = (-(-size // stride) - 1) * stride + extent - size
    return needed


def share_pads(total: Sequence[int], *, upper: bool) -> Ints:
    """Padding split between begin and end; the odd one goes to the end if `upper`.

    Halves are rounded towards 0.
    """
    begin = [int(t / 2) if upper else int((t + 1) / 2) for t in total]
    return (*begin, *(t - b for t, b in zip(total, begin, strict=True)))


def transposed(
    kernel: Sequence[int], sizes: Sequence[Any], out: Sequence[Any], given: Mapping[str, Any]
) -> tuple[Window, Ints]:
    """Window of the convolution whose gradient is a ConvTranspose of `sizes`, and output padding.

    Its pads are given, or follow from the output's size: then what the windows cover beyond it is
    cut off, half on each side.  What is added behind the windows is `output_padding`, or what an
    output of given size is larger than they cover.

    Raises:
        ValueError: the pads depend on a size that is unknown.
    """
    mode = given.get("auto_pad") or "NOTSET"
    plain = {**given, "auto_pad": "NOTSET" if mode.startswith("SAME") else mode}
    window = Window.of(kernel, (), plain)
    extra = tuple(given.get("output_padding") or (0,) * window.rank)
    if given.get("output_shape"):
        if not all(isinstance(n, int) for n in (*sizes, *out)):
            raise ValueError("its pads depend on sizes that are unknown; give them with --dim")
        covered = zip(window.covered(sizes), extra, out, strict=True)
        total = [c + e - o for c, e, o in covered]
        extra = tuple(e + max(0, -t) for e, t in zip(extra, total, strict=True))
    elif mode.startswith("SAME"):
        reach = zip(window.extent, extra, window.strides, strict=True)
        total = [extent + e - stride for extent, e, stride in reach]
    else:
        return window, extra
    pads = share_pads([max(0, t) for t in total], upper=mode == "SAME_UPPER")
    rank = window.rank
    return Window(window.kernel, window.strides, window.dilations, pads[:rank], pads[rank:]), extra


Dim = Any  # int | ir.SymbolicDim: the library has no types


def _pool(library: Any, ctx: Any, node: ir.Node) -> None:
    """The library's sizes, but as `Window.count` counts; with SAME also of open images."""
    library(ctx, node)
    x, given = node.inputs[0], arguments(node)
    if x is None or x.shape is None or len(x.shape) != 2 + len(given["kernel_shape"]):
        return
    ceil = bool(given.get("ceil_mode", 0))
    if given.get("auto_pad", "NOTSET").startswith("SAME"):
        window = Window.of(given["kernel_shape"], (), {**given, "auto_pad": "VALID"})
        sizes = [_same(window, axis, size, ceil=ceil) for axis, size in enumerate(x.shape[2:])]
    else:
        window = Window.of(given["kernel_shape"], (), given)
        sizes = [_count(window, axis, size, ceil=ceil) for axis, size in enumerate(x.shape[2:])]
        if not ceil:
            _require_fit(ctx, node, window, x.shape[2:])
    for value in node.outputs:
        if value.shape is not None:
            ctx.set_shape(value, ir.Shape([*x.shape[:2], *sizes]))


def _require_fit(ctx: Any, node: ir.Node, window: Window, sizes: Any) -> None:
    """Refuse a window that sticks out by less than a step: the standard has none, runtimes one."""
    for axis, size in enumerate(sizes):
        if isinstance(size, int) and -window.strides[axis] < window.room(axis, size) < 0:
            extent, padded = window.extent[axis], size + window.begin[axis] + window.end[axis]
            problem = f"its window of {extent} does not fit into the {padded} of axis {axis + 2}"
            ctx.record_error(node, problem)


def _same(window: Window, axis: int, size: Dim, *, ceil: bool) -> Dim:
    """The windows along an axis with SAME, whose padding ignores dilations.

    Their further reach costs whole strides of the last windows.
    """
    stride = window.strides[axis]
    beyond = window.extent[axis] - window.kernel[axis]
    return _parts(size, stride) - (beyond // stride if ceil else _parts(beyond, stride))


def _parts(size: Dim, stride: int) -> Dim:
    """`size / stride`, rounded up."""
    return size if stride == 1 else (size + (stride - 1)) // stride


def _count(window: Window, axis: int, size: Dim, *, ceil: bool) -> Dim:
    """The number of windows along an axis; of an open one as an expression."""
    if isinstance(size, int):
        return window.count(axis, size, ceil=ceil)
    begin, stride = window.begin[axis], window.strides[axis]
    free = window.extent[axis] - window.end[axis]
    room = size + (begin - free)
    if not ceil or stride == 1:
        return room // stride + 1
    count = _parts(room, stride) + 1
    if free >= stride:
        return count
    return ir.SymbolicDim(f"min({count.value}, {_parts(size + begin, stride).value})")


def _convolution(slot: int) -> Any:
    """The library's, for windows that fit; the weight is the input at `slot`."""

    def rule(library: Any, ctx: Any, node: ir.Node) -> None:
        library(ctx, node)
        x, weight, given = node.inputs[0], node.inputs[slot], arguments(node)
        if x is None or weight is None or x.shape is None or weight.shape is None:
            return
        kernel = [size for size in weight.shape[2:] if isinstance(size, int)]
        same = given.get("auto_pad", "NOTSET").startswith("SAME")
        if not same and len(kernel) == len(x.shape) - 2:
            _require_fit(ctx, node, Window.of(kernel, (), given), x.shape[2:])

    return rule


def _transposed(library: Any, ctx: Any, node: ir.Node) -> None:
    """The library's; with SAME no more than the windows cover."""
    library(ctx, node)
    x, weight, made, given = node.inputs[0], node.inputs[1], node.outputs[0], arguments(node)
    if x is None or weight is None or weight.shape is None or made.shape is None:
        return
    same = given.get("auto_pad", "NOTSET").startswith("SAME") and not given.get("output_shape")
    kernel = [size for size in weight.shape[2:] if isinstance(size, int)]
    if not same or x.shape is None or len(kernel) != len(x.shape) - 2:
        return
    window, extra = transposed(kernel, x.shape[2:], (), given)
    reach = zip(x.shape[2:], window.strides, window.extent, extra, strict=True)
    sizes = [n * s - max(0, s - extent - e) for n, s, extent, e in reach]
    ctx.set_shape(made, ir.Shape([*made.shape[:2], *sizes]))


RULES = {
    **{(name, 1): _pool for name in ("MaxPool", "AveragePool", "LpPool")},
    **{(name, 1): _convolution(1) for name in ("Conv", "DeformConv", "ConvInteger")},
    ("QLinearConv", 1): _convolution(3),
    ("ConvTranspose", 1): _transposed,
}
