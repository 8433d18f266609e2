"""Where Resize reads: the elements and weights behind each place of a resized axis."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Taps:
    """`y[j] = fill[j] + Σₖ weights[j, k] · x[index[j, k]]` along one axis."""

    axis: int
    index: np.ndarray
    weights: np.ndarray
    fill: np.ndarray | None = None

    @property
    def repeats(self):
        """How often in a row each element is shown, if that is all that happens; else 0."""
        places = len(self.index)
        elements = int(self.index[-1, 0]) + 1 if places else 0
        if self.fill is not None or self.index.shape[1] != 1 or not elements or places % elements:
            return 0
        each = places // elements
        return each if (self.index[:, 0] == np.arange(places) // each).all() else 0

    def transposed(self, size):
        """The taps of the gradient: which places each of `size` elements is shown at."""
        place, tap = np.nonzero(self.weights)
        element = self.index[place, tap]
        order = np.argsort(element, kind="stable")
        place, tap, element = place[order], tap[order], element[order]
        counts = np.bincount(element, minlength=size)
        nth = np.arange(len(element)) - np.repeat(np.cumsum(counts) - counts, counts)
        index = np.zeros((size, max(1, counts.max(initial=0))), np.int64)
        weights = np.zeros(index.shape)
        index[element, nth] = place
        weights[element, nth] = self.weights[place, tap]
        return Taps(self.axis, index, weights)


def taps(have, want, roi=None, scales=None, sizes=None, *, axes=None, **attributes):
    """The taps of each axis that a Resize from shape `have` to `want` changes."""
    rank = len(have)
    axes = list(range(rank)) if axes is None else [a % rank for a in axes]
    factors = _factors(have, want, axes, scales, sizes, attributes)
    crops = np.ravel(roi).tolist() if roi is not None and roi.size else []
    crops = crops or [0.0] * len(axes) + [1.0] * len(axes)
    found = []
    for i, (axis, factor) in enumerate(zip(axes, factors, strict=True)):
        crop = crops[i], crops[len(axes) + i]
        if factor != 1 or have[axis] != want[axis] or crop != (0, 1):
            found.append(_axis_taps(axis, have[axis], want[axis], factor, crop, **attributes))
    return sorted(found, key=lambda t: want[t.axis] / max(have[t.axis], 1))


def _factors(have, want, axes, scales, sizes, attributes):
    if scales is not None and scales.size:
        return np.ravel(scales).tolist()
    policy = attributes.get("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return [want[a] / have[a] for a in axes]
    asked = [s / have[a] for s, a in zip(np.ravel(sizes).tolist(), axes, strict=True)]
    return [min(asked) if policy == "not_larger" else max(asked)] * len(axes)


def _axis_taps(
    axis, size, places, factor, crop, *, mode="nearest", nearest_mode="round_prefer_floor",
    coordinate_transformation_mode="half_pixel", antialias=0, cubic_coeff_a=-0.75,
    exclude_outside=0, extrapolation_value=0.0, keep_aspect_ratio_policy="stretch",
):  # fmt: skip
    x = _coordinates(coordinate_transformation_mode, size, places, factor, crop)
    if mode == "nearest":
        index, weights = _nearest(x, nearest_mode)[:, None], np.ones((places, 1))
    else:
        shrink = min(factor, 1.0) if antialias else 1.0
        curve = _cubic(cubic_coeff_a) if mode == "cubic" else _triangle
        reach = math.ceil((2 if mode == "cubic" else 1) / shrink)
        index = np.floor(x).astype(np.int64)[:, None] + np.arange(1 - reach, reach + 1)
        weights = curve(np.abs(index - x[:, None]) * shrink)
        if exclude_outside or antialias:
            weights *= (index >= 0) & (index < size)
        weights /= weights.sum(axis=1, keepdims=True)
    index = np.clip(index, 0, size - 1)
    if coordinate_transformation_mode != "tf_crop_and_resize":
        return Taps(axis, index, weights)
    outside = (x < 0) | (x > size - 1)
    weights[outside] = 0
    return Taps(axis, index, weights, outside * extrapolation_value)


def _coordinates(mode, size, places, factor, crop):
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


def _nearest(x, mode):
    rounded = {
        "round_prefer_floor": lambda: np.ceil(x - 0.5),
        "round_prefer_ceil": lambda: np.floor(x + 0.5),
        "floor": lambda: np.floor(x),
        "ceil": lambda: np.ceil(x),
    }
    return rounded[mode]().astype(np.int64)


def _triangle(distance):
    return np.clip(1 - distance, 0, 1)


def _cubic(a):
    """Keys's kernel with parameter `a`. Source: R. Keys 1981, eq. 4 and 15."""

    def curve(d):
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0.0))

    return curve
