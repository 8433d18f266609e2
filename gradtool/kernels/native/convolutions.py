"""Convolutions and their gradients: by Winograd's F(4×4, 3×3) where that pays, else directly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradtool.graph.specs import Spec
from gradtool.kernels.native import Bound, are_floats, native, room
from gradtool.kernels.native.images import Turns, turned
from gradtool.kernels.types import Array, Arrays, Specs
from gradtool.native import conv, depthwise, winograd
from gradtool.native.choice import algorithm
from gradtool.operators.windows import Window


def _window(w: Sequence[int], x: Sequence[int], given: Mapping[str, Any]) -> conv.Window:
    window = Window.of(w[2:], x[2:], given)
    return conv.Window(window.strides, window.dilations, window.begin, given.get("group") or 1)  # type: ignore[arg-type]


def _last(shape: Sequence[int]) -> tuple[int, ...]:
    n, c, h, w = shape
    return n, h, w, c


def _fits(*specs: Spec | None, out: Sequence[Spec | None], **_: Any) -> bool:
    images = [s for s in (*specs, *out) if s is not None and s.dtype.kind == "f"]
    return (
        are_floats(*images)
        and all(len(s.shape) in (1, 4) and 0 not in s.shape for s in images)
        and out[0] is not None
        and len(out[0].shape) == 4
    )


def _method(x: Spec, w: Spec, *_rest: Any, out: Specs, **given: Any) -> str:
    return algorithm(w.shape, _window(w.shape, x.shape, given))


def _input_method(dy: Spec, w: Spec, *_rest: Any, out: Specs, **given: Any) -> str:
    return algorithm(w.shape, _window(w.shape, out[0].shape, given))


def _weight_method(x: Spec, dy: Spec, *, out: Specs, **given: Any) -> str:
    return algorithm(out[0].shape, _window(out[0].shape, x.shape, given))


# ------------------------------------------------------------------------------ forward


def _forward_bytes(
    x: Spec, w: Spec, y: Spec, window: conv.Window, *, backward: bool = False
) -> int:
    """Bytes that computing y of x takes, or x of y if `backward`."""
    found = algorithm(w.shape, window)
    if found == "depthwise":
        return depthwise.work(w.shape)
    if found == "winograd":
        source, target = (y, x) if backward else (x, y)
        n, channels, height, width = target.shape
        return winograd.work(n, height, width, source.shape[1], channels)
    shapes = (_last(x.shape), w.shape, _last(y.shape))
    return conv.work(*shapes, window, backward=backward)


def _forward_work(
    x: Spec, w: Spec, _bias: Spec | None = None, *, out: Specs, **given: Any
) -> list[Spec]:
    window = _window(w.shape, x.shape, given)
    return room(turned(x, out[0]) + _forward_bytes(x, w, out[0], window))


@native(
    "Conv", fits=_fits, work=_forward_work, layouts="last", rows_in=(1,), method=_method
)
def convolve(
    x: Array, w: Array, bias: Array | None = None, *, out: Arrays, work: Arrays, **given: Any
) -> Bound:
    """`y[N, M, *out] = Σ x[N, C, *in] · w[M, C/G, *kernel] + b[M]`."""
    window, turns = _window(w.shape, x.shape, given), Turns(work)
    found = algorithm(w.shape, window)
    a, y = turns.read(x), turns.write(out[0])
    if found == "winograd":
        top, left = window.pads
        call = winograd.forward(a, w, y, turns.rest(), top=top, left=left, bias=bias)
    else:
        module = depthwise if found == "depthwise" else conv
        call = module.forward(a, w, y, turns.rest(), window, bias=bias)
    return turns.around(call)


# --------------------------------------------------------------------------- gradients


def _input_work(dy: Spec, w: Spec, _sizes: Any, *, out: Specs, **given: Any) -> list[Spec]:
    window = _window(w.shape, out[0].shape, given)
    return room(turned(dy, out[0]) + _forward_bytes(out[0], w, dy, window, backward=True))


@native(
    "ai.gradtool::ConvGradInput",
    fits=_fits,
    work=_input_work,
    layouts="last",
    rows_in=(1,),
    method=_input_method,
)
def gradient_input(
    dy: Array, w: Array, _: Array, *, out: Arrays, work: Arrays, **given: Any
) -> Bound:
    """`dx` of `convolve`."""
    window, turns = _window(w.shape, out[0].shape, given), Turns(work)
    found = algorithm(w.shape, window)
    a, dx = turns.read(dy), turns.write(out[0])
    if found == "winograd":
        top, left = window.pads
        call = winograd.gradient_x(a, w, dx, turns.rest(), top=top, left=left)
    else:
        module = depthwise if found == "depthwise" else conv
        call = module.gradient_x(a, w, dx, turns.rest(), window)
    return turns.around(call)


def _weight_work(x: Spec, dy: Spec, *, out: Specs, **given: Any) -> list[Spec]:
    w = out[0]
    window = _window(w.shape, x.shape, given)
    found = algorithm(w.shape, window)
    if found == "depthwise":
        size = depthwise.work(w.shape)
    elif found == "winograd":
        n, outputs, height, width = dy.shape
        size = winograd.work(n, height, width, x.shape[1], outputs)
    else:
        size = conv.gradient_w_work(_last(x.shape), w.shape, _last(dy.shape), window)
    return room(turned(x, dy) + size)


@native(
    "ai.gradtool::ConvGradWeight",
    fits=_fits,
    work=_weight_work,
    layouts="last",
    rows_out=(0,),
    method=_weight_method,
)
def gradient_weight(x: Array, dy: Array, *, out: Arrays, work: Arrays, **given: Any) -> Bound:
    """`dw` of `convolve`."""
    (dw,) = out
    window, turns = _window(dw.shape, x.shape, given), Turns(work)
    found = algorithm(dw.shape, window)
    a, b = turns.read(x), turns.read(dy)
    if found == "winograd":
        top, left = window.pads
        call = winograd.gradient_w(a, b, dw, turns.rest(), top=top, left=left)
    else:
        module = depthwise if found == "depthwise" else conv
        call = module.gradient_w(a, b, dw, turns.rest(), window)
    return turns.around(call)
