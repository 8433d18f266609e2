"""Convolutions and their gradients: by Winograd's F(4×4, 3×3) where that pays, else directly.

Lines `[N, C, L]` are images one pixel high.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gradtool.graph.specs import Spec
from gradtool.native import conv, depthwise, elementwise, winograd
from gradtool.native.choice import algorithm
from gradtool.operators import windows
from gradtool.operators.windows import Window
from gradtool.ops.native import EXACT, Bound, are_floats, in_turn, native, room
from gradtool.ops.shared.image_layouts import Turns, turned
from gradtool.ops.shared.types import Array, Arrays, Specs

IMAGE = 4  # axes
ADD: list[elementwise.Step] = [("add", 2, 0, 1)]


def _image(x: Any) -> Any:
    """An array, or a spec, of lines or of their weights as one of images."""
    if len(x.shape) == IMAGE:
        return x
    shape = (*x.shape[:2], 1, *x.shape[2:])
    return Spec(shape, x.dtype) if isinstance(x, Spec) else x.reshape(shape)


def _fits(*specs: Spec | None, out: Sequence[Spec | None]) -> bool:
    images = [s for s in (*specs, *out) if s is not None and s.dtype.kind == "f"]
    ranks = {len(s.shape) for s in images} - {1}
    floats = are_floats(*images) and all(0 not in s.shape for s in images)
    return floats and out[0] is not None and ranks in ({3}, {4})


def _window(w: Any, x: Any, given: Mapping[str, Any]) -> conv.Window:
    """The window of weights over x."""
    return _flat(Window.of(w.shape[2:], x.shape[2:], given), given)


def _flat(window: Window, given: Mapping[str, Any]) -> conv.Window:
    """A window over images; over lines it stays on the one that there is."""
    ones, none = (1,) * (2 - window.rank), (0,) * (2 - window.rank)
    return conv.Window(
        (*ones, *window.strides), (*ones, *window.dilations), (*none, *window.begin),  # type: ignore[arg-type]
        given.get("group") or 1, given.get(EXACT, False),
    )  # fmt: skip


def _transposed(x: Any, w: Any, y: Any, given: Mapping[str, Any]) -> conv.Window:
    """The window of the convolution whose gradient takes x to y."""
    return _flat(windows.transposed(w.shape[2:], x.shape[2:], y.shape[2:], given)[0], given)


def _last(shape: Sequence[int]) -> tuple[int, ...]:
    n, c, h, w = shape
    return n, h, w, c


def _bytes(x: Spec, w: Spec, y: Spec, window: conv.Window, *, backward: bool) -> int:
    """Bytes that computing y of x takes, or x of y if `backward`."""
    x, w, y = (_image(each) for each in (x, w, y))
    found = algorithm(w.shape, window)
    if found == "depthwise":
        return depthwise.work(w.shape)
    if found == "winograd":
        source, target = (y, x) if backward else (x, y)
        n, channels, height, width = target.shape
        return winograd.work(n, height, width, source.shape[1], channels)
    shapes = (_last(x.shape), w.shape, _last(y.shape))
    return conv.work(*shapes, window, backward=backward)


# ------------------------------------------------------------------------------ forward


def _forward_work(
    x: Spec, w: Spec, _bias: Spec | None = None, *, out: Specs, **given: Any
) -> list[Spec]:
    taken = _bytes(x, w, out[0], _window(w, x, given), backward=False)
    return room(turned(x, out[0]) + taken)


@native(
    "Conv",
    fits=_fits,
    work=_forward_work,
    layouts="last",
    exact=True,
    rows_in=(1,),
    method=lambda x, w, **given: algorithm(_image(w).shape, _window(w, x, given)),
)
def convolve(
    x: Array, w: Array, bias: Array | None = None, *, out: Arrays, work: Arrays, **given: Any
) -> Bound:
    """`y[N, M, *out] = Σ x[N, C, *in] · w[M, C/G, *kernel] + b[M]`."""
    window, turns, w = _window(w, x, given), Turns(work), _image(w)
    a, y = turns.read(_image(x)), turns.write(_image(out[0]))
    found = algorithm(w.shape, window)
    if found == "winograd":
        top, left = window.pads
        call = winograd.forward(a, w, y, turns.rest(), top=top, left=left, bias=bias)
    else:
        module = depthwise if found == "depthwise" else conv
        call = module.forward(a, w, y, turns.rest(), window, bias=bias)
    return turns.around(call)


# ------------------------------------------------------------------------------ backward


def _input_method(dy: Spec, w: Spec, *, out: Specs, **given: Any) -> str:
    return algorithm(_image(w).shape, _window(w, out[0], given))


def _input_work(dy: Spec, w: Spec, *, out: Specs, **given: Any) -> list[Spec]:
    taken = _bytes(out[0], w, dy, _window(w, out[0], given), backward=True)
    return room(turned(dy, out[0]) + taken)


def _gradient(dy: Array, w: Array, dx: Array, work: Array, window: conv.Window) -> Bound:
    """Bound call computing dx from dy, both channels last."""
    found = algorithm(w.shape, window)
    if found == "winograd":
        top, left = window.pads
        return winograd.gradient_x(dy, w, dx, work, top=top, left=left)
    if found == "depthwise":
        return depthwise.gradient_x(dy, w, dx, work, window)
    return conv.gradient_x(dy, w, dx, work, window)


@native(
    "ai.gradtool::ConvGradInput", fits=_fits, work=_input_work, layouts="last", exact=True,
    rows_in=(1,), method=_input_method,
)  # fmt: skip
def gradient_input(
    dy: Array, w: Array, _: Array, *, out: Arrays, work: Arrays, **given: Any
) -> Bound:
    """`dx` of `convolve`."""
    window, turns = _window(w, out[0], given), Turns(work)
    a, dx = turns.read(_image(dy)), turns.write(_image(out[0]))
    return turns.around(_gradient(a, _image(w), dx, turns.rest(), window))


def _transposed_method(x: Spec, w: Spec, *, out: Specs, **given: Any) -> str:
    return algorithm(_image(w).shape, _transposed(x, w, out[0], given))


def _transposed_work(
    x: Spec, w: Spec, bias: Spec | None = None, *, out: Specs, **given: Any
) -> list[Spec]:
    taken = _bytes(out[0], w, x, _transposed(x, w, out[0], given), backward=True)
    count = math.prod(out[0].shape)
    added = elementwise.work(ADD, inputs=2, held=1, count=count) if bias is not None else 0
    return room(turned(x, out[0]) + max(taken, added))


@native(
    "ConvTranspose", fits=_fits, work=_transposed_work, layouts="last", exact=True, rows_in=(1,),
    method=_transposed_method,
)  # fmt: skip
def transposed(
    x: Array, w: Array, bias: Array | None = None, *, out: Arrays, work: Arrays, **given: Any
) -> Bound:
    """The gradient of a convolution by its input, plus a bias per channel."""
    window, turns = _transposed(x, w, out[0], given), Turns(work)
    a, y = turns.read(_image(x)), turns.write(_image(out[0]))
    call = _gradient(a, _image(w), y, turns.rest(), window)
    if bias is not None:
        call = in_turn(call, elementwise.run(ADD, [y, bias], [y], turns.rest()))
    return turns.around(call)


def _weight_method(x: Spec, *, out: Specs, **given: Any) -> str:
    return algorithm(_image(out[0]).shape, _window(out[0], x, given))


def _weight_work(x: Spec, dy: Spec, *, out: Specs, **given: Any) -> list[Spec]:
    window, w = _window(out[0], x, given), _image(out[0])
    images = _image(x), _image(dy)
    found = algorithm(w.shape, window)
    if found == "depthwise":
        size = depthwise.work(w.shape)
    elif found == "winograd":
        n, outputs, height, width = images[1].shape
        size = winograd.work(n, height, width, x.shape[1], outputs)
    else:
        size = conv.gradient_w_work(_last(images[0].shape), w.shape, _last(images[1].shape), window)
    return room(turned(x, dy) + size)


@native(
    "ai.gradtool::ConvGradWeight", fits=_fits, work=_weight_work, layouts="last", exact=True,
    rows_out=(0,), method=_weight_method,
)  # fmt: skip
def gradient_weight(x: Array, dy: Array, *, out: Arrays, work: Arrays, **given: Any) -> Bound:
    """`dw` of `convolve`."""
    window, turns, dw = _window(out[0], x, given), Turns(work), _image(out[0])
    a, b = turns.read(_image(x)), turns.read(_image(dy))
    found = algorithm(dw.shape, window)
    if found == "winograd":
        top, left = window.pads
        call = winograd.gradient_w(a, b, dw, turns.rest(), top=top, left=left)
    else:
        module = depthwise if found == "depthwise" else conv
        call = module.gradient_w(a, b, dw, turns.rest(), window)
    return turns.around(call)
