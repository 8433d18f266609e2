import numpy as np
import pytest
from conftest import sampled
from native_calls import each_instruction_set, needs_library, normal, relative_error, run

from gradtool.native import batch_norm

pytestmark = [needs_library, *each_instruction_set]
SEEDS = sampled(range(40))


def drawn(seed):
    """`(rng, shape, last, axes, per)`: what is summed, and the shape of numbers per channel."""
    rng = np.random.default_rng(seed)
    last = bool(rng.integers(2))
    images, channels = int(rng.choice((1, 2, 5, 33))), int(rng.choice((1, 3, 8, 16, 17, 40, 130)))
    pixels = [int(rng.choice((1, 2, 7, 16, 31))) for _ in range(rng.integers(3))]
    if seed % 8 == 0:
        pixels = [97, 91]
        images, channels = min(images, 2), min(channels, 17)
    shape = (images, *pixels, channels) if last else (images, channels, *pixels)
    axis = len(shape) - 1 if last else 1
    axes = tuple(a for a in range(len(shape)) if a != axis)
    return rng, shape, last, axes, tuple(channels if a == axis else 1 for a in range(len(shape)))


def far(rng, *shape):
    """Numbers whose mean is not near 0."""
    return 2 * normal(rng, *shape) + 5


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("training", [False, True])
def test_batch_normalisation_is_that_of_float64(seed, training):
    rng, shape, last, axes, per = drawn(seed)
    channels = max(per)
    x, relu = far(rng, *shape), bool(rng.integers(2))
    scale, bias, mean = normal(rng, 3, channels)
    variance = rng.random(channels, np.float32) + 0.1
    residual = normal(rng, *shape) if rng.integers(2) else None
    options = {"epsilon": 1e-3, "momentum": 0.7, "relu": relu, "last": last, "training": training}
    one = (channels,)
    made = run(
        lambda y, *to: batch_norm.batch_norm(
            x, scale, bias, mean, variance, y, *(to[:4] if training else (None, None, *to[2:4])),
            to[4], residual=residual, **options,
        ),
        shape, one, one, one, one, work=batch_norm.work(shape, last=last),
        inputs=(x, scale, bias, mean, variance),
    )  # fmt: skip

    wide = x.astype(float)
    m, v = (wide.mean(axes), wide.var(axes)) if training else (mean, variance)
    rstd = 1 / np.sqrt(v.astype(float) + 1e-3)
    y = (wide - m.reshape(per)) * (rstd * scale).reshape(per) + bias.reshape(per)
    y = y + (0 if residual is None else residual)
    assert relative_error(made[0], np.maximum(y, 0) if relu else y) < 4e-6
    assert relative_error(made[3], m.astype(float)) < 6e-7
    assert relative_error(made[4], rstd) < 2e-6
    if training:
        assert relative_error(made[1], 0.7 * mean + 0.3 * m) < 6e-7
        assert relative_error(made[2], 0.7 * variance + 0.3 * v) < 2e-6


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("known", [False, True])
def test_its_gradient_is_that_of_float64(seed, known):
    rng, shape, last, axes, per = drawn(seed)
    channels, count = max(per), np.prod(shape) // max(per)
    x, dy = far(rng, *shape), normal(rng, *shape)
    scale = normal(rng, channels)
    y = normal(rng, *shape) if rng.integers(2) else None
    wide = x.astype(float)
    m, v = wide.mean(axes), wide.var(axes)
    rstd = 1 / np.sqrt(v + 0.1)
    kept = (m.astype(np.float32), rstd.astype(np.float32)) if known else (None, None)
    made = run(
        lambda dx, ds, db, dr, room: batch_norm.batch_norm_grad(
            x, scale, *kept, dy, dx, ds, db, room, y=y, dresidual=dr, last=last, epsilon=0.1,
        ),
        shape, (channels,), (channels,), shape, work=batch_norm.work(shape, last=last),
        inputs=(x, scale, dy),
    )  # fmt: skip

    d = dy.astype(float) if y is None else np.where(y <= 0, 0, dy).astype(float)
    n = (wide - m.reshape(per)) * rstd.reshape(per)
    ds, db = (d * n).sum(axes), d.sum(axes)
    dx = d - (db / count).reshape(per) - n * (ds / count).reshape(per)
    dx = dx * (scale * rstd).reshape(per)
    assert made[3].tobytes() == d.astype(np.float32).tobytes()
    for found, exact in zip(made, (dx, ds, db), strict=False):
        assert relative_error(found, exact, least=np.sqrt(count)) < 3e-6


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 3), (2, 3, 0), (0, 3)])
def test_statistics_of_nothing_are_nan_and_its_gradients_zero(last, shape):
    x = np.empty(shape, np.float32)
    one = np.ones(shape[-1] if last else shape[1], np.float32)
    room = batch_norm.work(shape, last=last)
    found = run(
        lambda y, m, r, work: batch_norm.batch_norm(
            x, one, one, one, one, y, None, None, m, r, work, training=True, last=last,
        ),
        shape, one.shape, one.shape, work=room,
    )  # fmt: skip
    nothing = not x.size and one.size

    assert not nothing or np.isnan(found[1]).all()
    ds, db = run(
        lambda ds, db, work: batch_norm.batch_norm_grad(
            x, one, None, None, x, None, ds, db, work, last=last
        ),
        one.shape, one.shape, work=room,
    )  # fmt: skip
    assert not ds.any()
    assert not db.any()


def test_a_mean_far_above_the_deviation_costs_no_more_than_its_rounding():
    rng = np.random.default_rng(0)
    x = (1000 + normal(rng, 8, 50, 50, 3)).astype(np.float32)
    one, room = np.ones(3, np.float32), np.empty(batch_norm.work(x.shape, last=True), np.int8)
    mean, rstd, zero = np.empty(3, np.float32), np.empty(3, np.float32), np.zeros(3, np.float32)
    y = np.empty_like(x)
    batch_norm.batch_norm(
        x, one, zero, zero, one, y, None, None, mean, rstd, room, training=True, last=True,
    )()  # fmt: skip

    assert relative_error(rstd, 1 / np.sqrt(x.astype(float).var((0, 1, 2)) + 1e-5)) < 1e-5
