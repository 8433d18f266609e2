import numpy as np
import pytest
from conftest import sampled
from native_calls import each_instruction_set, needs_library, normal, relative_error, run

from gradtool.native import layer_norm

pytestmark = [needs_library, *each_instruction_set]
SEEDS = sampled(range(40))


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
def test_layer_normalisation_is_that_of_float64(seed, root):
    rng, shape, axis, one = drawn_rows(seed)
    x, scale = 2 * normal(rng, *shape) + 3, normal(rng, *one)
    bias = normal(rng, *one) if rng.integers(2) else None
    residual = normal(rng, *shape) if rng.integers(2) else None
    keeps = bool(rng.integers(2)) or residual is None
    kept = (*shape[:axis], *[1] * len(one))
    made = run(
        lambda y, total, mean, rstd, _: layer_norm.layer_norm(
            x, scale, bias, y, mean, rstd, residual=residual, total=total if keeps else None,
            root=root, axis=axis, epsilon=0.1,
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
def test_its_gradient_is_that_of_float64(seed, root):
    rng, shape, axis, one = drawn_rows(seed)
    x, scale, dy = 2 * normal(rng, *shape) + 3, normal(rng, *one), normal(rng, *shape)
    dtotal = normal(rng, *shape) if rng.integers(2) else None
    axes = tuple(range(axis, len(shape)))
    n, mean, rstd = normalised(x.astype(float), axes, 0.1, root=root)
    known = bool(rng.integers(2))
    kept = (mean.astype(np.float32), rstd.astype(np.float32)) if known else (None, None)
    made = run(
        lambda dx, ds, db, room: layer_norm.layer_norm_grad(
            x, scale, *kept, dy, dx, ds, db, room, dtotal=dtotal, root=root, axis=axis, epsilon=0.1,
        ),
        shape, one, one, work=layer_norm.layer_work(shape, axis), inputs=(x, scale, dy),
    )  # fmt: skip

    before = tuple(range(axis))
    dx = gradient(n, dy * scale.astype(float), rstd, axes, root=root)
    dx = dx + (0 if dtotal is None else dtotal)
    rows = np.sqrt(np.prod(shape[:axis]))
    assert relative_error(made[0], dx, least=4.0) < 3e-6
    assert relative_error(made[1], (dy * n).sum(before), least=rows) < 3e-6
    assert relative_error(made[2], dy.sum(before, dtype=float), least=rows) < 3e-6


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_rows_of_nothing_touch_nothing(shape):
    x, one = np.empty(shape, np.float32), np.ones(shape[1:], np.float32)
    run(
        lambda y, m, r, _: layer_norm.layer_norm(x, one, one, y, m, r),
        shape, (shape[0], 1), (shape[0], 1),
    )  # fmt: skip
    _, ds, db = run(
        lambda dx, ds, db, room: layer_norm.layer_norm_grad(
            x, one, None, None, x, dx, ds, db, room
        ),
        shape, one.shape, one.shape, work=layer_norm.layer_work(shape),
    )  # fmt: skip

    assert not ds.any()
    assert not db.any()
