import numpy as np
import pytest
from conftest import sampled
from native_calls import each_instruction_set, needs_library, normal, relative_error, run

from gradtool.native import group_norm

pytestmark = [needs_library, *each_instruction_set]
SEEDS = sampled(range(40))


def normalised(x, epsilon):
    """`(n, rstd)` over the last axis."""
    mean = x.mean(2, keepdims=True)
    rstd = 1 / np.sqrt(((x - mean) ** 2).mean(2, keepdims=True) + epsilon)
    return (x - mean) * rstd, rstd


def gradient(n, dn, rstd):
    return rstd * (dn - dn.mean(2, keepdims=True) - n * (dn * n).mean(2, keepdims=True))


def moved(a, last):
    """An array with its channels where the kernel wants them."""
    return np.ascontiguousarray(np.moveaxis(a, 1, -1)) if last and a is not None else a


def back(a, last):
    return np.moveaxis(a, -1, 1) if last else a


def drawn_groups(seed):
    rng = np.random.default_rng(seed)
    groups, each = int(rng.choice((1, 2, 5))), int(rng.choice((1, 3, 4)))
    pixels = tuple(int(rng.choice((1, 3, 16, 41, 90))) for _ in range(rng.integers(3)))
    shape = (int(rng.choice((1, 2, 7))), groups * each, *pixels)
    scales = groups if rng.integers(2) else groups * each
    per = (1, groups * each, *[1] * len(pixels))
    return rng, shape, groups, scales, per


def by_group(shape, groups):
    return (shape[0], groups, -1)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_group_normalisation_is_that_of_float64(seed, last):
    rng, shape, groups, scales, per = drawn_groups(seed)
    x, relu = 2 * normal(rng, *shape) + 3, bool(rng.integers(2))
    scale, bias = normal(rng, 2, scales)
    residual = normal(rng, *shape) if rng.integers(2) else None
    given, added = moved(x, last), moved(residual, last)
    options = {"groups": groups, "relu": relu, "last": last, "epsilon": 0.1}
    (y,) = run(
        lambda y, room: group_norm.group_norm(
            given, scale, bias, y, room, residual=added, **options
        ),
        given.shape, work=group_norm.work(given.shape, last=last), inputs=(given, scale, bias),
    )  # fmt: skip

    n, _ = normalised(x.astype(float).reshape(by_group(shape, groups)), 0.1)
    s, b = (np.repeat(p, shape[1] // scales).reshape(per) for p in (scale, bias))
    exact = n.reshape(shape) * s + b + (0 if residual is None else residual)
    assert relative_error(back(y, last), np.maximum(exact, 0) if relu else exact) < 4e-6


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_gradient_of_groups_is_that_of_float64(seed, last):
    rng, shape, groups, scales, per = drawn_groups(seed)
    x, dy, scale = 2 * normal(rng, *shape) + 3, normal(rng, *shape), normal(rng, scales)
    y = normal(rng, *shape) if rng.integers(2) else None
    given, slopes, shown = (moved(a, last) for a in (x, dy, y))
    made = run(
        lambda dx, ds, db, dr, room: group_norm.group_norm_grad(
            given, scale, slopes, dx, ds, db, room, groups=groups, y=shown, dresidual=dr, last=last,
            epsilon=0.1,
        ),
        given.shape, (scales,), (scales,), given.shape,
        work=group_norm.work(given.shape, last=last), inputs=(given, scale, slopes),
    )  # fmt: skip

    d = dy.astype(float) if y is None else np.where(y <= 0, 0, dy).astype(float)
    view = by_group(shape, groups)
    n, rstd = normalised(x.astype(float).reshape(view), 0.1)
    dn = (d * np.repeat(scale, shape[1] // scales).reshape(per)).reshape(view)
    axes, many = (0, *range(2, len(shape))), np.sqrt(x.size / scales)
    ds, db = (
        v.reshape(shape).sum(axes).reshape(scales, -1).sum(1) for v in (d * n.reshape(shape), d)
    )
    dx = gradient(n, dn, rstd).reshape(shape)
    assert back(made[3], last).tobytes() == d.astype(np.float32).tobytes()
    assert relative_error(back(made[0], last), dx, 4.0) < 3e-6
    assert relative_error(made[1], ds, least=many) < 3e-6
    assert relative_error(made[2], db, least=many) < 3e-6


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("shape", [(0, 4, 4), (2, 0, 4), (2, 4, 0)])
def test_groups_of_nothing_touch_nothing(shape, last):
    x, one = np.empty(shape, np.float32), np.ones(shape[-1 if last else 1], np.float32)
    options = {"groups": 2, "last": last}
    work = group_norm.work(shape, last=last)
    run(lambda *to: group_norm.group_norm(x, one, one, *to, **options), shape, work=work)
    _, ds, db = run(
        lambda *to: group_norm.group_norm_grad(x, one, x, *to, **options),
        shape, one.shape, one.shape, work=work,
    )  # fmt: skip

    assert not ds.any()
    assert not db.any()
