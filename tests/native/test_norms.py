import numpy as np
import pytest
from native_calls import each_instruction_set, needs_library, normal, relative_error, run

from gradtool.native import norms

pytestmark = [needs_library, each_instruction_set]
SEEDS = range(40)


def drawn_rows(seed):
    """`(rng, shape, axis, one)`: `one` is the shape of the scale."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    shape = [int(rng.choice((1, 2, 3, 17, 40, 70))) for _ in range(rank)]
    shape[-1] = int(rng.choice((1, 7, 16, 31, 64, 130)))
    if seed % 10 == 0:
        shape = [3, 5000]
        rank = 2
    axis = int(rng.integers(rank))
    return rng, tuple(shape), axis, tuple(shape[axis:])


def normalised(x, axes, epsilon, *, root=False):
    mean = 0 * x.mean(axes, keepdims=True) if root else x.mean(axes, keepdims=True)
    rstd = 1 / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + epsilon)
    return (x - mean) * rstd, mean, rstd


def gradient(n, dn, rstd, axes, *, root=False):
    first = 0 if root else dn.mean(axes, keepdims=True)
    return rstd * (dn - first - n * (dn * n).mean(axes, keepdims=True))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("root", [False, True])
def test_layer_normalisation_is_that_of_float64(instructions, seed, root):
    rng, shape, axis, one = drawn_rows(seed)
    x, scale = 2 * normal(rng, *shape) + 3, normal(rng, *one)
    bias = normal(rng, *one) if rng.integers(2) else None
    residual = normal(rng, *shape) if rng.integers(2) else None
    keeps = bool(rng.integers(2)) or residual is None
    kept = (*shape[:axis], *[1] * len(one))
    made = run(
        lambda y, total, mean, rstd, _: norms.layer_norm(
            x, scale, bias, y, mean, rstd, residual=residual, total=total if keeps else None,
            root=root, axis=axis, epsilon=0.1, instructions=instructions,
        ),
        shape, shape, kept, kept, inputs=(x, scale),
    )  # fmt: skip

    s = x if residual is None else x + residual
    axes = tuple(range(axis, len(shape)))
    n, mean, rstd = normalised(s.astype(float), axes, 0.1, root=root)
    assert relative_error(made[0], n * scale + (0 if bias is None else bias)) < 4e-6
    assert relative_error(made[2], mean) < 5e-7
    assert relative_error(made[3], rstd) < 1e-6
    if keeps and residual is not None:
        assert made[1].tobytes() == s.tobytes()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("root", [False, True])
def test_its_gradient_is_that_of_float64(instructions, seed, root):
    rng, shape, axis, one = drawn_rows(seed)
    x, scale, dy = 2 * normal(rng, *shape) + 3, normal(rng, *one), normal(rng, *shape)
    dtotal = normal(rng, *shape) if rng.integers(2) else None
    axes = tuple(range(axis, len(shape)))
    n, mean, rstd = normalised(x.astype(float), axes, 0.1, root=root)
    known = bool(rng.integers(2))
    kept = (mean.astype(np.float32), rstd.astype(np.float32)) if known else (None, None)
    made = run(
        lambda dx, ds, db, room: norms.layer_norm_grad(
            x, scale, *kept, dy, dx, ds, db, room, dtotal=dtotal, root=root, axis=axis, epsilon=0.1,
            instructions=instructions,
        ),
        shape, one, one, work=norms.layer_work(shape, axis), inputs=(x, scale, dy),
    )  # fmt: skip

    before = tuple(range(axis))
    dx = gradient(n, dy * scale.astype(float), rstd, axes, root=root)
    dx = dx + (0 if dtotal is None else dtotal)
    rows = np.sqrt(np.prod(shape[:axis]))
    assert relative_error(made[0], dx, least=4.0) < 3e-6
    assert relative_error(made[1], (dy * n).sum(before), least=rows) < 3e-6
    assert relative_error(made[2], dy.sum(before, dtype=float), least=rows) < 3e-6


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


@pytest.mark.parametrize("seed", SEEDS)
def test_group_normalisation_is_that_of_float64(instructions, seed):
    rng, shape, groups, scales, per = drawn_groups(seed)
    x, relu = 2 * normal(rng, *shape) + 3, bool(rng.integers(2))
    scale, bias = normal(rng, 2, scales)
    residual = normal(rng, *shape) if rng.integers(2) else None
    (y,) = run(
        lambda y, _: norms.group_norm(
            x,
            scale,
            bias,
            y,
            groups=groups,
            residual=residual,
            relu=relu,
            epsilon=0.1,
            instructions=instructions,
        ),
        shape,
        inputs=(x, scale, bias),
    )

    n, _, _ = normalised(x.astype(float).reshape(by_group(shape, groups)), 2, 0.1)
    s, b = (np.repeat(p, shape[1] // scales).reshape(per) for p in (scale, bias))
    exact = n.reshape(shape) * s + b + (0 if residual is None else residual)
    assert relative_error(y, np.maximum(exact, 0) if relu else exact) < 4e-6


@pytest.mark.parametrize("seed", SEEDS)
def test_the_gradient_of_groups_is_that_of_float64(instructions, seed):
    rng, shape, groups, scales, per = drawn_groups(seed)
    x, dy, scale = 2 * normal(rng, *shape) + 3, normal(rng, *shape), normal(rng, scales)
    y = normal(rng, *shape) if rng.integers(2) else None
    made = run(
        lambda dx, ds, db, dr, room: norms.group_norm_grad(
            x, scale, dy, dx, ds, db, room, groups=groups, y=y, dresidual=dr, epsilon=0.1,
            instructions=instructions,
        ),
        shape, (scales,), (scales,), shape, work=norms.group_work(shape), inputs=(x, scale, dy),
    )  # fmt: skip

    d = dy.astype(float) if y is None else np.where(y <= 0, 0, dy).astype(float)
    view = by_group(shape, groups)
    n, _, rstd = normalised(x.astype(float).reshape(view), 2, 0.1)
    dn = d * np.repeat(scale, shape[1] // scales).reshape(per)
    axes, many = (0, *range(2, len(shape))), np.sqrt(x.size / scales)
    ds, db = (
        v.reshape(shape).sum(axes).reshape(scales, -1).sum(1) for v in (d * n.reshape(shape), d)
    )
    assert made[3].tobytes() == d.astype(np.float32).tobytes()
    assert (
        relative_error(made[0], gradient(n, dn.reshape(view), rstd, 2).reshape(shape), 4.0) < 3e-6
    )
    assert relative_error(made[1], ds, least=many) < 3e-6
    assert relative_error(made[2], db, least=many) < 3e-6


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_rows_of_nothing_touch_nothing(instructions, shape):
    x, one = np.empty(shape, np.float32), np.ones(shape[1:], np.float32)
    run(
        lambda y, m, r, _: norms.layer_norm(x, one, one, y, m, r, instructions=instructions),
        shape, (shape[0], 1), (shape[0], 1),
    )  # fmt: skip
    _, ds, db = run(
        lambda dx, ds, db, room: norms.layer_norm_grad(
            x, one, None, None, x, dx, ds, db, room, instructions=instructions
        ),
        shape, one.shape, one.shape, work=norms.layer_work(shape),
    )  # fmt: skip

    assert not ds.any()
    assert not db.any()


@pytest.mark.parametrize("shape", [(0, 4, 3), (2, 0, 3), (2, 4, 0)])
def test_groups_of_nothing_touch_nothing(instructions, shape):
    x, one = np.empty(shape, np.float32), np.ones(shape[1], np.float32)
    run(lambda y, _: norms.group_norm(x, one, one, y, groups=2, instructions=instructions), shape)
    _, ds, db = run(
        lambda dx, ds, db, room: norms.group_norm_grad(
            x, one, x, dx, ds, db, room, groups=2, instructions=instructions
        ),
        shape, one.shape, one.shape, work=norms.group_work(shape),
    )  # fmt: skip

    assert not ds.any()
    assert not db.any()
