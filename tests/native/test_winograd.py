import numpy as np
import pytest
from conftest import sampled
from native_calls import each_instruction_set, needs_library, normal, relative_error, run
from native_convolutions import Convolution

from gradtool.native import winograd

pytestmark = [needs_library, *each_instruction_set]
ERROR = 2e-5


def drawn(seed):
    """A convolution, and its x, w and dy."""
    rng = np.random.default_rng(seed)
    batch, channels, out = rng.integers(1, 4), *rng.choice([16, 17, 24, 32, 40, 67], 2)
    height, width = rng.integers(3, 20, 2)
    if seed % 5 == 0:  # blocks of outputs
        channels, out = rng.choice([150, 300], 2)
        height, width = rng.integers(3, 8, 2)
    elif seed % 5 == 1:  # blocks of tiles
        height, width = rng.integers(40, 60, 2)
    pads = tuple(rng.integers(0, 3, 4).tolist())
    shape = (int(batch), int(height), int(width), int(channels))
    conv = Convolution(shape, (int(out), int(channels), 3, 3), pads=pads)
    return conv, normal(rng, *shape), normal(rng, *conv.w_shape), normal(rng, *conv.y_shape), rng


@pytest.mark.parametrize("seed", sampled(range(25)))
def test_y_is_that_of_a_direct_convolution_in_float64(seed):
    conv, x, w, _, rng = drawn(seed)
    bias = normal(rng, conv.w_shape[0]) if seed % 2 else None
    top, left, *_ = conv.pads
    (found,) = run(
        lambda y, work: winograd.forward(x, w, y, work, top=top, left=left, bias=bias),
        conv.y_shape,
        work=winograd.work(*conv.y_shape[:3], x.shape[3], w.shape[0]),
        inputs=(x, w),
    )

    assert relative_error(found, conv.y(x, w, bias)) < ERROR


@pytest.mark.parametrize("seed", sampled(range(25)))
def test_dx_is_that_of_a_direct_convolution_in_float64(seed):
    conv, x, w, dy, _ = drawn(seed)
    top, left, *_ = conv.pads
    (found,) = run(
        lambda dx, work: winograd.gradient_x(dy, w, dx, work, top=top, left=left),
        x.shape,
        work=winograd.work(*x.shape[:3], w.shape[0], x.shape[3]),
        inputs=(dy, w),
    )

    assert relative_error(found, conv.dx(dy, w)) < ERROR


@pytest.mark.parametrize("seed", sampled(range(25)))
def test_dw_is_that_of_a_direct_convolution_in_float64(seed):
    conv, x, w, dy, _ = drawn(seed)
    top, left, *_ = conv.pads
    (found,) = run(
        lambda dw, work: winograd.gradient_w(x, dy, dw, work, top=top, left=left),
        w.shape,
        work=winograd.work(*conv.y_shape[:3], x.shape[3], w.shape[0]),
        inputs=(x, dy),
    )

    assert relative_error(found, conv.dw(x, dy)) < ERROR


def test_fewer_channels_than_a_vector_are_refused():
    x, w, y = (
        np.zeros(shape, np.float32) for shape in ((1, 4, 4, 15), (16, 15, 3, 3), (1, 4, 4, 16))
    )
    with pytest.raises(ValueError, match="16 channels or more"):
        winograd.forward(x, w, y, np.zeros(1, np.float32))
    with pytest.raises(ValueError, match="16 channels or more"):
        winograd.gradient_w(x, y, w, np.zeros(1, np.float32))
