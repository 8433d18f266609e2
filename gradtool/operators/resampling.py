"""Taps of Resize: the elements and weights behind each place of a resized axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradtool.errors import UsageError

Array = np.ndarray[Any, Any]
WHOLE = (0.0, 1.0)  # a crop that cuts nothing
MOST_PLACES = 2**22  # along an axis that a table is made for
HALFWAY = 1e-6  # positions so near to the middle of two elements are in it, as in onnxruntime


@dataclass(frozen=True)
class Taps:
    """`y[j] = fill[j] + Σₖ weights[j, k] · x[index[j, k]]` along one axis of `size` elements."""

    axis: int
    size: int
    index: Array
    weights: Array
    fill: Array | None = None

    @property
    def copies(self) -> bool:
        """Whether every place shows one element as it is."""
        return self.fill is None and self.index.shape[1] == 1 and bool((self.weights == 1).all())

    @property
    def repeats(self) -> int:
        """Repetitions in a row of each element, if the axis is only repeated; else 0."""
        places = len(self.index)
        if not self.copies or not places or places % self.size:
            return 0
        each = places // self.size
        return each if (self.index[:, 0] == np.arange(places) // each).all() else 0

    def matrix(self) -> Array:
        """The map from elements to places, `[places, elements]`."""
        dense = np.zeros((len(self.index), self.size))
        np.add.at(dense, (np.arange(len(dense))[:, None], self.index), self.weights)
        return dense

    def transposed(self) -> Taps:
        """The taps of the gradient: which places each element is shown at."""
        place, tap = np.nonzero(self.weights)
        element = self.index[place, tap]
        order = np.argsort(element, kind="stable")
        place, tap, element = place[order], tap[order], element[order]
        counts = np.bincount(element, minlength=self.size)
        nth = np.arange(len(element)) - np.repeat(np.cumsum(counts) - counts, counts)
        weights = np.zeros((self.size, max(1, counts.max(initial=0))))
        index = np.zeros(weights.shape, np.int64)
        index[element] = place[:, None]
        index[element, nth] = place
        weights[element, nth] = self.weights[place, tap]
        return Taps(self.axis, len(self.index), index, weights)


def taps(
    have: Sequence[int], want: Sequence[int], roi: Array | None = None, scales: Array | None = None,
    sizes: Array | None = None, *,
    axes: Sequence[int] | None = None, every: bool = False, **attributes: Any,
) -> list[Taps]:  # fmt: skip
    """The taps of each axis that a Resize from shape `have` to `want` changes; or of `every` axis.

    A Resize that keeps every size copies, whatever its scales are; so does one with antialiasing
    along the axes that keep theirs.
    """
    rank = len(have)
    axes = list(range(rank)) if axes is None else [a % rank for a in axes]
    policy = attributes.pop("keep_aspect_ratio_policy", "stretch")
    factors = _factors(have, want, axes, scales, sizes, policy)
    crops = _crops(roi, len(axes), attributes.get("coordinate_transformation_mode"))
    copied = attributes.get("antialias", 0) or tuple(have) == tuple(want)
    found = []
    for axis, factor, crop in zip(axes, factors, crops, strict=True):
        kept = have[axis] == want[axis] and (copied or factor == 1)
        if not kept or crop != WHOLE:
            found.append(_axis_taps(axis, have[axis], want[axis], factor, crop, **attributes))
        elif every:
            found.append(_unit_taps(axis, have[axis]))
    return sorted(found, key=lambda t: want[t.axis] / max(have[t.axis], 1))


def _require_table(*sizes: int) -> None:
    if max(sizes) > MOST_PLACES:
        raise UsageError(
            f"Resize of an axis of {max(sizes)} elements: its table has at most {MOST_PLACES}"
        )


def _unit_taps(axis: int, size: int) -> Taps:
    """Taps of an axis that stays as it is."""
    _require_table(size)
    return Taps(axis, size, np.arange(size)[:, None], np.ones((size, 1)))


def _factors(
    have: Sequence[int],
    want: Sequence[int],
    axes: Sequence[int],
    scales: Array | None,
    sizes: Array | None,
    policy: str,
) -> list[float]:
    if isinstance(scales, np.ndarray) and scales.size:
        return [float(s) for s in np.ravel(scales)]
    if policy == "stretch" or not isinstance(sizes, np.ndarray):
        return [want[a] / have[a] if have[a] else 1.0 for a in axes]
    scale = common_scale([have[a] for a in axes], np.ravel(sizes).tolist(), policy)
    return [float(scale)] * len(axes)


def common_scale(have: Sequence[int], sizes: Sequence[int], policy: str) -> np.float32:
    """The one scale of all axes where `policy` keeps the aspect ratio."""
    asked = np.asarray(sizes, np.float32) / np.maximum(np.asarray(have, np.float32), 1)
    return np.float32(asked.min() if policy == "not_larger" else asked.max())


def _crops(roi: Array | None, axes: int, mode: str | None) -> list[tuple[float, float]]:
    """Crop of each axis, as parts of its length; only one mode crops."""
    if mode != "tf_crop_and_resize" or not isinstance(roi, np.ndarray) or not roi.size:
        return [WHOLE] * axes
    ends = np.ravel(roi).tolist()
    return list(zip(ends[:axes], ends[axes:], strict=True))


def _axis_taps(
    axis: int, size: int, places: int, factor: float, crop: tuple[float, float], *,
    mode: str = "nearest", nearest_mode: str = "round_prefer_floor",
    coordinate_transformation_mode: str = "half_pixel", antialias: int = 0,
    cubic_coeff_a: float = -0.75, exclude_outside: int = 0, extrapolation_value: float = 0.0,
) -> Taps:  # fmt: skip
    if places and not size:
        raise UsageError(f"Resize makes {places} elements of none, along axis {axis}")
    _require_table(size, places)
    where = coordinate_transformation_mode, size, places, factor, crop
    rounded, x = (_coordinates(*where, number) for number in (np.float32, np.float64))
    if mode == "nearest":
        index, weights = _nearest(rounded, nearest_mode)[:, None], np.ones((places, 1))
    else:
        shrink = min(factor, 1.0) if antialias else 1.0
        curve = _cubic(cubic_coeff_a) if mode == "cubic" else _triangle
        reach = math.ceil((2 if mode == "cubic" else 1) / shrink)
        index = np.floor(x).astype(np.int64)[:, None] + np.arange(1 - reach, reach + 1)
        weights = curve(np.abs(index - x[:, None]) * shrink)
        if exclude_outside:
            weights *= (index >= 0) & (index < size)
        total = weights.sum(axis=1, keepdims=True)
        weights /= np.where(total == 0, 1, total)
    index = np.clip(index, 0, size - 1)
    if coordinate_transformation_mode != "tf_crop_and_resize":
        return Taps(axis, size, index, weights)
    outside = (rounded < 0) | (rounded > size - 1)
    weights[outside] = 0
    return Taps(
        axis, size, index, weights, outside * extrapolation_value if outside.any() else None
    )


def _coordinates(
    mode: str, size: int, places: int, factor: float, crop: tuple[float, float], number: type[Any]
) -> Array:
    """The position in x of each place of y, every operation rounded to `number`.

    The nearest element and the places outside are decided by the position in
    float32, as in onnxruntime and PyTorch: 7 / 0.7 is 10 there.
    """
    j: Array = np.arange(places, dtype=number)
    scale, length = number(factor), number(size)
    if mode == "asymmetric":
        found = j / scale
    elif mode == "align_corners":
        found = j * (length - 1) / number(max(places - 1, 1))
    elif mode == "tf_crop_and_resize" and places == 1:
        found = j + 0.5 * float(number(crop[0]) + number(crop[1])) * (size - 1)
    elif mode == "tf_crop_and_resize":
        start, end = map(number, crop)
        found = start * (length - 1) + j * (end - start) * (length - 1) / number(places - 1)
    elif mode == "pytorch_half_pixel" and places == 1:
        found = j
    elif mode == "half_pixel_symmetric":
        offset = length / 2 * (1 - number(places) / (scale * length))
        found = offset + (np.arange(places) + 0.5) / float(scale) - 0.5
    else:
        found = (j + number(0.5)) / scale - number(0.5)
    return np.asarray(found, number)


def _nearest(x: Array, mode: str) -> Array:
    half = 0.5 + HALFWAY
    shift = {"round_prefer_floor": -half, "round_prefer_ceil": half}.get(mode, 0.0)
    down = mode in ("floor", "round_prefer_ceil")
    rounded: Array = (np.floor if down else np.ceil)(x.astype(np.float64) + shift).astype(np.int64)
    return rounded


def _triangle(distance: Array) -> Array:
    weights: Array = np.maximum(1 - distance, 0)
    return weights


def _cubic(a: float) -> Callable[[Array], Array]:
    """Keys's kernel with parameter `a`. Source: R. Keys 1981, eq. 4 and 15."""

    def curve(d: Array) -> Array:
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0.0))

    return curve
