"""Where Resize reads: the elements and weights behind each place of a resized axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Taps:
    """`y[j] = fill[j] + Σₖ weights[j, k] · x[index[j, k]]` along one axis."""

    axis: int
    index: Array
    weights: Array
    fill: Array | None = None

    @property
    def copies(self) -> bool:
        """Whether every place shows one element as it is."""
        return self.fill is None and self.index.shape[1] == 1 and bool((self.weights == 1).all())

    @property
    def repeats(self) -> int:
        """How often in a row each element is shown, if that is all that happens; else 0."""
        places = len(self.index)
        elements = int(self.index[-1, 0]) + 1 if places else 0
        if not self.copies or not elements or places % elements:
            return 0
        each = places // elements
        return each if (self.index[:, 0] == np.arange(places) // each).all() else 0

    def matrix(self, size: int) -> Array:
        """The map from `size` elements to the places, `[places, size]`."""
        dense = np.zeros((len(self.index), size))
        np.add.at(dense, (np.arange(len(dense))[:, None], self.index), self.weights)
        return dense

    def transposed(self, size: int) -> Taps:
        """The taps of the gradient: which places each of `size` elements is shown at."""
        place, tap = np.nonzero(self.weights)
        element = self.index[place, tap]
        order = np.argsort(element, kind="stable")
        place, tap, element = place[order], tap[order], element[order]
        counts = np.bincount(element, minlength=size)
        nth = np.arange(len(element)) - np.repeat(np.cumsum(counts) - counts, counts)
        weights = np.zeros((size, max(1, counts.max(initial=0))))
        index = np.zeros(weights.shape, np.int64)
        index[element] = place[:, None]
        index[element, nth] = place
        weights[element, nth] = self.weights[place, tap]
        return Taps(self.axis, index, weights)


def taps(
    have: Sequence[int],
    want: Sequence[int],
    roi: Array | None = None,
    scales: Array | None = None,
    sizes: Array | None = None,
    *,
    axes: Sequence[int] | None = None,
    **attributes: Any,
) -> list[Taps]:
    """The taps of each axis that a Resize from shape `have` to `want` changes."""
    rank = len(have)
    axes = list(range(rank)) if axes is None else [a % rank for a in axes]
    policy = attributes.pop("keep_aspect_ratio_policy", "stretch")
    factors = _factors(have, want, axes, scales, sizes, policy)
    crops = np.ravel(roi).tolist() if roi is not None and roi.size else []
    crops = crops or [0.0] * len(axes) + [1.0] * len(axes)
    found = []
    for i, (axis, factor) in enumerate(zip(axes, factors, strict=True)):
        crop = crops[i], crops[len(axes) + i]
        if factor != 1 or have[axis] != want[axis] or crop != (0, 1):
            found.append(_axis_taps(axis, have[axis], want[axis], factor, crop, **attributes))
    return sorted(found, key=lambda t: want[t.axis] / max(have[t.axis], 1))


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
    if policy == "stretch" or sizes is None:
        return [want[a] / have[a] for a in axes]
    asked = [s / have[a] for s, a in zip(np.ravel(sizes).tolist(), axes, strict=True)]
    return [min(asked) if policy == "not_larger" else max(asked)] * len(axes)


def _axis_taps(
    axis: int,
    size: int,
    places: int,
    factor: float,
    crop: tuple[float, float],
    *,
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
    coordinate_transformation_mode: str = "half_pixel",
    antialias: int = 0,
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
) -> Taps:
    x = _coordinates(coordinate_transformation_mode, size, places, factor, crop)
    if mode == "nearest":
        rounded = _nearest(x.astype(np.float32), nearest_mode)
        index, weights = rounded[:, None], np.ones((places, 1))
    else:
        shrink = min(factor, 1.0) if antialias else 1.0
        curve = _cubic(cubic_coeff_a) if mode == "cubic" else _triangle
        reach = math.ceil((2 if mode == "cubic" else 1) / shrink)
        index = np.floor(x).astype(np.int64)[:, None] + np.arange(1 - reach, reach + 1)
        weights = curve(np.abs(index - x[:, None]) * shrink)
        if exclude_outside:
            weights *= (index >= 0) & (index < size)
        weights /= weights.sum(axis=1, keepdims=True)
    index = np.clip(index, 0, size - 1)
    if coordinate_transformation_mode != "tf_crop_and_resize":
        return Taps(axis, index, weights)
    outside = (x < 0) | (x > size - 1)
    weights[outside] = 0
    return Taps(axis, index, weights, outside * extrapolation_value)


def _coordinates(
    mode: str, size: int, places: int, factor: float, crop: tuple[float, float]
) -> Array:
    """The position in x of each place of y."""
    j = np.arange(places, dtype=np.float64)
    length = factor * size
    if mode == "asymmetric":
        return j / factor
    if mode == "align_corners":
        return j * ((size - 1) / (length - 1)) if length != 1 else j * 0
    if mode == "tf_crop_and_resize":
        start, end = crop
        if places == 1:
            return j + 0.5 * (start + end) * (size - 1)
        return start * (size - 1) + j * ((end - start) * (size - 1) / (length - 1))
    if mode == "pytorch_half_pixel" and places == 1:
        return j
    centred = (j + 0.5) / factor - 0.5
    if mode == "half_pixel_symmetric":
        return centred + size / 2 * (1 - places / length)
    return centred


def _nearest(x: Array, mode: str) -> Array:
    shift = {"round_prefer_floor": -0.5, "round_prefer_ceil": 0.5}.get(mode, 0.0)
    down = mode in ("floor", "round_prefer_ceil")
    rounded: Array = (np.floor if down else np.ceil)(x + shift).astype(np.int64)
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
