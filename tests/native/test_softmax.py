import numpy as np
import pytest
from conftest import sampled
from native_calls import each_instruction_set, needs_library, normal, relative_error, run
from scipy import special

from gradtool.native import cross_entropy, softmax

pytestmark = [needs_library, *each_instruction_set]
FLAG = np.zeros(1, np.int64)
LENGTHS = (1, 2, 3, 7, 15, 16, 17, 33, 61, 130)


def drawn(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(rng.choice(LENGTHS)) for _ in range(rng.integers(1, 4)))
    return rng, shape, int(rng.integers(len(shape)))


@pytest.mark.parametrize("seed", sampled(range(30)))
@pytest.mark.parametrize("log", [False, True])
def test_softmax_is_that_of_float64(seed, log):
    rng, shape, axis = drawn(seed)
    x = 10 * normal(rng, *shape)
    (y,) = run(
        lambda y, _: softmax.softmax(x, y, axis=axis, log=log),
        shape,
        inputs=(x,),
    )

    exact = (special.log_softmax if log else special.softmax)(x.astype(float), axis)
    assert relative_error(y, exact) < 1e-6


@pytest.mark.parametrize("seed", sampled(range(30)))
@pytest.mark.parametrize("log", [False, True])
def test_its_gradient_is_that_of_float64(seed, log):
    rng, shape, axis = drawn(seed)
    p = special.softmax(3 * normal(rng, *shape), axis).astype(np.float32)
    y = np.log(p) if log else p
    dy = normal(rng, *shape)
    (dx,) = run(
        lambda dx, _: softmax.softmax_grad(y, dy, dx, axis=axis, log=log),
        shape,
        inputs=(y, dy),
    )

    y, dy = y.astype(float), dy.astype(float)
    if log:
        exact = dy - np.exp(y) * dy.sum(axis, keepdims=True)
    else:
        exact = y * (dy - (y * dy).sum(axis, keepdims=True))
    assert relative_error(dx, exact) < 3e-6


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 3, 0), (2, 0, 3)])
@pytest.mark.parametrize("axis", [0, 1])
def test_empty_ones_are_empty(shape, axis):
    x = np.empty(shape, np.float32)
    run(lambda y, _: softmax.softmax(x, y, axis=axis), shape)
    run(lambda y, _: softmax.softmax_grad(x, x, y, axis=axis), shape)


def test_what_is_hidden_is_zero_and_a_line_of_nothing_nan():
    x = np.zeros((4, 20), np.float32)
    x[0, 3:] = -np.inf
    x[1] = -np.inf
    x[2, 5] = np.nan
    y = np.empty_like(x)
    softmax.softmax(x, y)()

    assert y[0].tolist() == [np.float32(1) / np.float32(3)] * 3 + [0] * 17
    assert np.isnan(y[1:3]).all()
    assert not np.isnan(y[3]).any()


def scores(seed):
    """`(rng, x, labels, weights, options)` of a loss."""
    rng = np.random.default_rng(seed)
    n, c = (int(rng.choice((1, 2, 5, 16, 33, 700))) for _ in range(2))
    rest = tuple(int(rng.choice((1, 3, 17, 40))) for _ in range(rng.integers(3)))
    n = min(n, 33) if rest else n
    c = min(c, 33) if rest else c
    labels = rng.integers(0, c, (n, *rest)).astype(rng.choice([np.int32, np.int64]))
    ignore = [None, -100, 0][rng.integers(3)]
    if ignore is not None:
        labels[rng.random(labels.shape) < 0.3] = ignore
    weights = rng.random(c, np.float32) if rng.integers(2) else None
    options = {"reduction": str(rng.choice(["none", "sum", "mean"])), "ignore_index": ignore}
    return rng, 5 * normal(rng, n, c, *rest), labels, weights, options


def weights_of(labels, weights, ignored):
    w = np.ones(labels.shape) if weights is None else weights[np.clip(labels, 0, None)]
    return w if ignored is None else np.where(labels == ignored, 0, w).astype(float)


@pytest.mark.parametrize("seed", sampled(range(60)))
def test_cross_entropy_is_that_of_float64(seed):
    _, x, labels, weights, options = scores(seed)
    shape = labels.shape if options["reduction"] == "none" else ()
    loss, log_prob = run(
        lambda loss, log_prob, room: cross_entropy.cross_entropy(
            x, labels, weights, loss, log_prob, room, FLAG, **options
        ),
        shape, x.shape, work=cross_entropy.work(x.shape), inputs=(x, labels),
    )  # fmt: skip

    exact = special.log_softmax(x.astype(float), 1)
    assert relative_error(log_prob, exact) < 1e-6
    w = weights_of(labels, weights, options["ignore_index"])
    chosen = np.take_along_axis(exact, np.clip(labels, 0, None)[:, None], 1)[:, 0]
    total = -(w * chosen)
    if options["reduction"] == "mean" and w.sum() == 0:
        assert np.isnan(loss)
        return
    match options["reduction"]:
        case "sum":
            total = total.sum()
        case "mean":
            total = total.sum() / w.sum()
    assert relative_error(loss, np.asarray(total)) < 1e-6


@pytest.mark.parametrize("seed", sampled(range(60)))
def test_the_gradient_of_cross_entropy_is_that_of_float64(seed):
    rng, x, labels, weights, options = scores(seed)
    mode = options["reduction"]
    dy = normal(rng, *(labels.shape if mode == "none" else ())) if rng.integers(4) else None
    dl = normal(rng, *x.shape) if rng.integers(2) else None
    w = weights_of(labels, weights, options["ignore_index"])
    if mode == "mean" and w.sum() == 0:
        return
    (dx,) = run(
        lambda dx, room: cross_entropy.cross_entropy_grad(
            x, labels, weights, dy, dl, dx, room, FLAG, **options
        ),
        x.shape, work=cross_entropy.work(x.shape), inputs=(x, labels),
    )  # fmt: skip

    g = w * (0 if dy is None else dy) / (w.sum() if mode == "mean" else 1)
    p = special.softmax(x.astype(float), 1)
    onehot = np.zeros_like(p)
    np.put_along_axis(onehot, np.clip(labels, 0, None)[:, None], 1, 1)
    exact = g[:, None] * (p - onehot)
    if dl is not None:
        exact = exact + dl - p * dl.sum(1, keepdims=True, dtype=float)
    assert relative_error(dx, exact) < 5e-6


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 3, 2), (2, 3, 0)])
def test_losses_of_nothing_touch_nothing(shape):
    x, labels = np.empty(shape, np.float32), np.empty((shape[0], *shape[2:]), np.int64)
    labels[...] = -1
    room = cross_entropy.work(shape)
    for mode in ("none", "sum"):
        run(
            lambda loss, log_prob, work, mode=mode: cross_entropy.cross_entropy(
                x, labels, None, loss, log_prob, work, FLAG, reduction=mode, ignore_index=-1,
            ),
            labels.shape if mode == "none" else (), shape, work=room,
        )  # fmt: skip
    run(
        lambda dx, work: cross_entropy.cross_entropy_grad(
            x, labels, None, np.ones((), np.float32), None, dx, work, FLAG,
        ),
        shape, work=room,
    )  # fmt: skip


def test_a_label_that_is_no_class_makes_its_sample_nan():
    x, labels = np.zeros((3, 4), np.float32), np.array([0, 4, -1])
    loss, log_prob = np.empty(3, np.float32), np.empty_like(x)
    room = np.empty(cross_entropy.work(x.shape), np.int8)
    cross_entropy.cross_entropy(x, labels, None, loss, log_prob, room, FLAG, reduction="none")()

    assert np.isnan(loss).tolist() == [False, True, True]


@pytest.mark.parametrize("seed", sampled(range(60)))
def test_a_label_that_is_no_class_is_said(seed):
    """By the loss and by its gradient, whatever else the labels and their weights are."""
    rng, x, labels, weights, options = scores(seed)
    if seed % 3 == 0 and weights is not None:
        weights[int(rng.integers(len(weights)))] = np.nan
    strange = bool(labels.size) and seed % 2 == 1
    if strange:
        labels.reshape(-1)[int(rng.integers(labels.size))] = x.shape[1] + int(rng.integers(9))
    room, flag = np.empty(cross_entropy.work(x.shape), np.int8), np.array([7])
    shape = labels.shape if options["reduction"] == "none" else ()
    loss = np.empty(shape, np.float32)
    cross_entropy.cross_entropy(x, labels, weights, loss, None, room, flag, **options)()
    assert flag.item() == strange

    flag[:] = 7
    dx = np.empty_like(x)
    cross_entropy.cross_entropy_grad(x, labels, weights, loss, None, dx, room, flag, **options)()
    assert flag.item() == strange
