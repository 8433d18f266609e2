"""Sizes that batches are rounded up to, and what they are padded with.

Source: bucketing of sequence lengths (Khomenko et al. 2016).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradtool.errors import UsageError

Array = np.ndarray[Any, Any]
AUTO = "auto"
MORE = 3  # elements that a batch is padded by to look what that changes
_FINE = 3  # bits behind the first of a size that is rounded to: eight sizes to a doubling


@dataclass(frozen=True)
class Lengths:
    """Padded sizes of batches: sizes that are `chosen`, or by themselves where there are none.

    `axes` are those of inputs that are rounded up, by name; `fills` what they are padded with.
    """

    axes: Mapping[str, tuple[int, ...]]
    fills: Mapping[str, int]
    chosen: tuple[int, ...] = ()

    def rounded(self, size: int) -> int:
        """The size that another one is padded to: itself where none that is chosen is larger."""
        if self.chosen:
            return min((each for each in self.chosen if each >= size), default=size)
        grain = 1 << max((size - 1).bit_length() - 1 - _FINE, 0) if size > 1 else 1
        return -(-size // grain) * grain

    def padded(self, batch: Mapping[str, Any], more: int = 0) -> dict[str, Array]:
        """A batch padded to the sizes it is rounded up to, or by so many `more` elements."""
        made = dict(batch)
        for name, axes in self.axes.items():
            array = made[name]
            widths = [(0, 0)] * array.ndim
            for axis in axes:
                size = array.shape[axis]
                widths[axis] = 0, more or self.rounded(size) - size
            if any(end for _, end in widths):
                made[name] = np.pad(array, widths, constant_values=self.fills[name])
        return made


def sizes_of(asked: str) -> tuple[int, ...]:
    """`8,16,32` as sorted sizes; none for `auto`. Raises UsageError if it is neither."""
    if asked == AUTO:
        return ()
    try:
        found = tuple(sorted({int(each) for each in asked.split(",")}))
    except ValueError:
        found = ()
    if not found or found[0] < 1:
        raise UsageError(f"--lengths {asked}: auto, or sizes as in 8,16,32")
    return found
