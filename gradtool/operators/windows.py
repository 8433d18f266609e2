"""Sliding windows of Conv, ConvTranspose and the pooling operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
