"""Pooling of images and its gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.native import pooling as library
from gradtool.operators.windows import Window
from gradtool.ops.native import Bound, are_floats, native, room
from gradtool.ops.shared.image_layouts import Turns, turned
from gradtool.ops.shared.types import Array, Arrays

IMAGE = 4  # axes
MARGIN = 16  # elements by which a window may be larger than twice the image
PLACES = (np.dtype(np.uint8), np.dtype(np.uint16))
Outputs = Sequence[Spec | None]


def _window(given: Mapping[str, Any], x: Sequence[int], *, padded: bool = False) -> library.Window:
    window = Window.of(given["kernel_shape"], x[2:], given, pool=True)
    pads = (*window.begin, *window.end)
    return library.Window(window.kernel, window.strides, window.dilations, pads, padded)  # type: ignore[arg-type]


def _are_images(x: Spec | None, y: Spec | None, places: Spec | None = None) -> bool:
    if x is None or y is None or (places is not None and places.dtype not in PLACES):
        return False
    return are_floats(x, y) and len(x.shape) == IMAGE and 0 not in (*x.shape, *y.shape)


def _is_small(x: Spec, given: Mapping[str, Any]) -> bool:
    """Whether a window is about as large as the image: the library walks over all of it."""
    sizes = zip(given["kernel_shape"], x.shape[2:], strict=True)
    return all(extent <= 2 * size + MARGIN for extent, size in sizes)


def _fits(x: Spec, *, out: Outputs, **given: Any) -> bool:
    return _are_images(x, *out) and _is_small(x, given)


def _fits_max(x: Spec, *, out: Outputs, **given: Any) -> bool:
    """Also where nobody asks for the maxima but for their places: a plan computes these again."""
    y, places = (*out, None)[:2]
    return _are_images(x, x if y is None and places is not None else y, places) and _is_small(
        x, given
    )


def _work(x: Spec, *, out: Outputs) -> list[Spec]:
    return room(turned(x, *out))


def _bind_max(x: Array, *, out: Arrays, work: Arrays, **given: Any) -> Bound:
    turns = Turns(work)
    y, places = (*out, None)[:2]
    places = None if places is None else turns.write(places)
    y = None if y is None else turns.write(y)
    call = library.max_pool(turns.read(x), y, places, _window(given, x.shape))
    return turns.around(call)


# MaxPool has places only where its gradient is not asked for: those of the standard are int64.
for _op in ("MaxPool", "ai.gradtool::MaxPoolTraining"):
    native(_op, fits=_fits_max, work=_work, layouts="last")(_bind_max)


def _fits_max_grad(dy: Spec, places: Spec, *, out: Outputs) -> bool:
    return _are_images(out[0], dy, places)


def _grad_work(dy: Spec, *rest: Any, out: Outputs) -> list[Spec]:
    images = [each for each in rest if isinstance(each, Spec) and len(each.shape) == IMAGE]
    return room(turned(dy, *images, out[0]))


@native("ai.gradtool::MaxPoolGrad", fits=_fits_max_grad, work=_grad_work, layouts="last")
def max_pool_grad(
    dy: Array, places: Array, _: Any, *, out: Arrays, work: Arrays, storage_order: int
) -> Bound:
    """Dy added at places counted within their planes."""
    turns = Turns(work)
    call = library.scatter(turns.read(dy), turns.read(places), turns.write(out[0]))
    return turns.around(call)


@native("AveragePool", fits=_fits, work=_work, layouts="last")
def average_pool(
    x: Array, *, out: Arrays, work: Arrays, count_include_pad: int = 0, **given: Any
) -> Bound:
    """The mean of each window over its elements in x, or in x and its padding."""
    turns, window = Turns(work), _window(given, x.shape, padded=bool(count_include_pad))
    return turns.around(library.average_pool(turns.read(x), turns.write(out[0]), window))


def _fits_average_grad(dy: Spec, *, out: Outputs, **given: Any) -> bool:
    dx = out[0]
    return dx is not None and _are_images(dx, dy) and _is_small(dx, given)


@native("ai.gradtool::AveragePoolGrad", fits=_fits_average_grad, work=_grad_work, layouts="last")
def average_pool_grad(
    dy: Array, _: Any, *, out: Arrays, work: Arrays, count_include_pad: int, **given: Any
) -> Bound:
    """Each window's gradient, divided by its count, added where the window lay."""
    dx = out[0]
    turns, window = Turns(work), _window(given, dx.shape, padded=bool(count_include_pad))
    return turns.around(library.average_pool_gradient(turns.read(dy), turns.write(dx), window))
