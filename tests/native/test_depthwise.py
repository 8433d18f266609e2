import numpy as np
import pytest
from conftest import sampled
from native_calls import each_instruction_set, needs_library, normal, relative_error, run
from native_convolutions import Convolution

from gradtool.native import conv, depthwise

pytestmark = [needs_library, *each_instruction_set]


@pytest.mark.parametrize("seed", sampled(range(60)))
def test_all_three_are_those_of_float64(seed):
    rng = np.random.default_rng(seed)
    channels = int(rng.choice([1, 3, 8, 16, 19, 24, 32, 64, 72, 100]))
    kernel = tuple(int(n) for n in rng.choice([1, 2, 3, 5], 2))
    strides, dilations = (tuple(rng.integers(1, 4, 2).tolist()) for _ in range(2))
    pads = tuple(rng.integers(0, 3, 4).tolist())
    height, width = (
        d * (k - 1) + 1 + int(rng.integers(17)) for k, d in zip(kernel, dilations, strict=True)
    )
    made = Convolution(
        (int(rng.integers(1, 4)), height, width, channels), (channels, 1, *kernel),
        strides, dilations, pads, channels,
    )  # fmt: skip
    x, w, dy = (normal(rng, *shape) for shape in (made.x_shape, made.w_shape, made.y_shape))
    bias = normal(rng, channels) if seed % 2 else None
    window = conv.Window(strides, dilations, pads[:2], channels)
    work = depthwise.work(w.shape)
    (y,) = run(
        lambda y, room: depthwise.forward(x, w, y, room, window, bias=bias),
        made.y_shape, work=work, inputs=(x, w),
    )  # fmt: skip
    (dx,) = run(
        lambda dx, room: depthwise.gradient_x(dy, w, dx, room, window),
        x.shape, work=work, inputs=(dy, w),
    )  # fmt: skip
    (dw,) = run(
        lambda dw, room: depthwise.gradient_w(x, dy, dw, room, window),
        w.shape, work=work, inputs=(x, dy),
    )  # fmt: skip

    assert relative_error(y, made.y(x, w, bias)) < 2e-6
    assert relative_error(dx, made.dx(dy, w)) < 2e-6
    assert relative_error(dw, made.dw(x, dy)) < 5e-6
