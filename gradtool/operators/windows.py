"""Sliding windows: what Conv, ConvTranspose and the pooling operators share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """A window of `kernel` taps, `dilations` apart, that moves by `strides` over a padded image."""

    kernel: Ints
    strides: Ints
    dilations: Ints
    begin: Ints
    end: Ints

    @classmethod
    def of(cls, kernel: Sequence[int], sizes: Sequence[Any], given: Mapping[str, Any]) -> Window:
        """The window of a node over an image of `sizes`, its `auto_pad` resolved.

        Raises:
            ValueError: the pads depend on a size that is unknown.
        """
        rank = len(kernel)
        strides = tuple(given.get("strides") or (1,) * rank)
        dilations = tuple(given.get("dilations") or (1,) * rank)
        pads = tuple(given.get("pads") or (0,) * (2 * rank))
        mode = given.get("auto_pad") or "NOTSET"
        if mode == "VALID":
            pads = (0,) * (2 * rank)
        elif mode != "NOTSET":
            extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
            total = [same_pads(*item) for item in zip(sizes, extent, strides, strict=True)]
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
        return {
            "strides": self.strides,
            "dilations": self.dilations,
            "pads": self.begin + self.end,
        }


def same_pads(size: Any, extent: int, stride: int) -> int:
    """The padding along one axis with which there are `ceil(size / stride)` windows."""
    if stride == 1:
        return extent - 1
    if not isinstance(size, int):
        raise ValueError(  # noqa: TRY004 - the size is missing, not of a wrong type
            "auto_pad=SAME with a stride needs a known size; give it with --dim"
        )
    return max(0, (-(-size // stride) - 1) * stride + extent - size)


def share_pads(total: Sequence[int], *, upper: bool) -> Ints:
    """Padding split between begin and end; the odd one goes to the end if `upper`."""
    begin = [t // 2 if upper else t - t // 2 for t in total]
    return (*begin, *(t - b for t, b in zip(total, begin, strict=True)))


def transposed_pads(
    sizes: Sequence[int], window: Window, out: Sequence[int], given: Mapping[str, Any]
) -> tuple[Ints, Ints]:
    """The pads of a ConvTranspose from images of `sizes` to images of `out`.

    They are given, or follow from the output's size: then what the windows cover beyond it is
    cut off, half on each side.
    """
    mode = given.get("auto_pad") or "NOTSET"
    if mode == "VALID" or (mode == "NOTSET" and not given.get("output_shape")):
        return window.begin, window.end
    extra = given.get("output_padding") or (0,) * window.rank
    reached = zip(window.covered(sizes), extra, out, strict=True)
    pads = share_pads([max(0, c + e - o) for c, e, o in reached], upper=mode == "SAME_UPPER")
    return pads[: window.rank], pads[window.rank :]
