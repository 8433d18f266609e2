import numpy as np
import pytest
from conftest import sampled
from native_calls import each_instruction_set, needs_library, normal, relative_error, run
from native_convolutions import Convolution

from gradtool.native import conv

pytestmark = [needs_library, *each_instruction_set]


def drawn(seed):
    """A convolution of any attributes, its window, and its x, w and dy."""
    rng = np.random.default_rng(seed)
    group = int(rng.choice([1, 1, 2, 3, 8, 12]))
    inputs, outputs = (int(n) for n in rng.choice([1, 3, 5, 16, 20, 33, 50], 2))
    kernel = tuple(int(n) for n in rng.choice([1, 2, 3, 5], 2))
    strides, dilations = (tuple(rng.integers(1, 4, 2).tolist()) for _ in range(2))
    if seed % 3 == 0:
        strides = dilations = (1, 1)
    pads = tuple(rng.integers(0, 3, 4).tolist()) if seed % 4 else (0, 0, 0, 0)
    height, width = (
        int(rng.integers(max(1, d * (k - 1) + 1), d * (k - 1) + 12))
        for k, d in zip(kernel, dilations, strict=True)
    )
    if seed % 5 == 0:  # rows that are multiplied where they lie
        width, group = width * 4, 1
    shape = (int(rng.integers(1, 4)), height, width, group * inputs)
    made = Convolution(shape, (group * outputs, inputs, *kernel), strides, dilations, pads, group)
    window = conv.Window(strides, dilations, pads[:2], group)
    return made, window, normal(rng, *shape), normal(rng, *made.w_shape), normal(rng, *made.y_shape)


SEEDS = pytest.mark.parametrize("seed", sampled(range(60)))


def tolerance(terms):
    """Of a float32 sum of so many products."""
    return 3e-7 * max(4.0, np.sqrt(terms))


@SEEDS
def test_y_is_that_of_float64(seed):
    made, window, x, w, _ = drawn(seed)
    bias = w[:, 0, 0, 0].copy() if seed % 2 else None
    (found,) = run(
        lambda y, work: conv.forward(x, w, y, work, window, bias=bias),
        made.y_shape,
        work=conv.work(x.shape, w.shape, made.y_shape, window),
        inputs=(x, w),
    )

    assert relative_error(found, made.y(x, w, bias)) < tolerance(w[0].size)


@SEEDS
def test_dx_is_that_of_float64(seed):
    made, window, x, w, dy = drawn(seed)
    (found,) = run(
        lambda dx, work: conv.gradient_x(dy, w, dx, work, window),
        x.shape,
        work=conv.work(x.shape, w.shape, made.y_shape, window, backward=True),
        inputs=(dy, w),
    )

    assert relative_error(found, made.dx(dy, w)) < tolerance(w[:, 0].size)


@SEEDS
def test_dw_is_that_of_float64(seed):
    made, window, x, w, dy = drawn(seed)
    (found,) = run(
        lambda dw, work: conv.gradient_w(x, dy, dw, work, window),
        w.shape,
        work=conv.gradient_w_work(x.shape, w.shape, made.y_shape, window),
        inputs=(x, dy),
    )

    assert relative_error(found, made.dw(x, dy)) < tolerance(dy[..., 0].size)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("channels", "outputs", "width", "kernel", "stride"),
    [
        *((130, 90, 10, 3, 2), (400, 40, 10, 3, 2), (40, 400, 10, 3, 2)),  # beyond a block
        *((32, 48, 10, 1, 1), (20, 30, 40, 1, 1), (300, 16, 9, 1, 1)),  # products of matrices
        *((3, 64, 90, 7, 2), (64, 96, 40, 3, 1), (5, 112, 70, 5, 2), (20, 16, 300, 3, 1)),  # rows
        *((3, 20, 90, 7, 2), (40, 16, 27, 3, 1), (64, 64, 64, 1, 2)),
    ],
)
def test_every_way_gives_what_float64_gives(channels, outputs, width, kernel, stride):
    rng = np.random.default_rng(channels)
    shape, pad = (2, 9, width, channels), kernel // 2
    made = Convolution(shape, (outputs, channels, kernel, kernel), (stride,) * 2, pads=(pad,) * 4)
    window = conv.Window((stride,) * 2, pads=(pad,) * 2)
    x, w, dy = (normal(rng, *shape) for shape in (made.x_shape, made.w_shape, made.y_shape))
    sizes = (made.x_shape, made.w_shape, made.y_shape, window)
    found = [
        run(lambda y, work: conv.forward(x, w, y, work, window), made.y_shape,
            work=conv.work(*sizes)),
        run(lambda dx, work: conv.gradient_x(dy, w, dx, work, window), made.x_shape,
            work=conv.work(*sizes, backward=True)),
        run(lambda dw, work: conv.gradient_w(x, dy, dw, work, window), made.w_shape,
            work=conv.gradient_w_work(*sizes)),
    ]  # fmt: skip
    for (got,), exact in zip(found, (made.y(x, w), made.dx(dy, w), made.dw(x, dy)), strict=True):
        assert relative_error(got, exact) < tolerance(9 * 400)
