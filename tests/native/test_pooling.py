import numpy as np
import pytest
from conftest import sampled
from native_calls import each_instruction_set, needs_library, normal, relative_error, run

from gradtool.native import pooling

pytestmark = [needs_library, *each_instruction_set]


def drawn(seed):
    """x, the shape of y, the window, and `(y place, x place)` of every value that is read."""
    rng = np.random.default_rng(seed)
    kernel = tuple(rng.integers(1, 4, 2).tolist())
    strides, dilations = (tuple(rng.integers(1, 4, 2).tolist()) for _ in range(2))
    pads = tuple(int(rng.integers(kernel[k % 2])) for k in range(4))
    size = [d * (k - 1) + 1 + int(rng.integers(9)) for k, d in zip(kernel, dilations, strict=True)]
    if seed % 7 == 0:  # global
        size, kernel, strides, dilations, pads = [5, 6], (5, 6), (1, 1), (1, 1), (0,) * 4
    # One place more than whole windows give, as with ceil_mode, if it begins inside.
    out = [
        (size[k] + pads[k] + pads[k + 2] - dilations[k] * (kernel[k] - 1) - 1) // strides[k] + 1
        for k in range(2)
    ]
    out = [
        n + (seed % 2 and n * s < z + p)
        for n, s, z, p in zip(out, strides, size, pads[:2], strict=True)
    ]
    x = normal(rng, int(rng.integers(1, 3)), *size, int(rng.choice([1, 5, 16, 21, 32])))
    if seed % 3 == 0:
        x = np.round(x)  # ties
    window = pooling.Window(kernel, strides, dilations, pads, padded=bool(rng.integers(2)))
    reads = []
    for i, j in np.ndindex(*out):
        for a, b in np.ndindex(*kernel):
            at = (
                i * strides[0] + a * dilations[0] - pads[0],
                j * strides[1] + b * dilations[1] - pads[1],
            )
            reads.append(((i, j), at))
    return x, (x.shape[0], *out, x.shape[3]), window, reads


def within(x, at):
    return 0 <= at[0] < x.shape[1] and 0 <= at[1] < x.shape[2]


def largest(x, shape, reads):
    y, taken = np.full(shape, -np.inf), np.zeros(shape, np.int64)
    seen = np.zeros(shape[1:3], bool)
    for place, at in reads:
        if within(x, at):
            value, here = x[:, at[0], at[1]], (slice(None), *place)
            better = (value > y[here]) | np.isnan(value) | (not seen[place])
            y[here] = np.where(better, value, y[here])
            taken[here] = np.where(better, at[0] * x.shape[2] + at[1], taken[here])
            seen[place] = True
    return y, taken


@pytest.mark.parametrize("seed", sampled(range(60)))
def test_the_largest_value_and_its_gradient_are_those_of_numpy(seed):
    x, shape, window, reads = drawn(seed)
    if seed % 5 == 0:
        x[:, ::3, ::2] = np.nan
    exact, place = largest(x, shape, reads)
    kind = np.dtype([np.uint8, np.uint16, np.int32][seed % 3])
    kind = kind if x[0, :, :, 0].size <= 256 else np.dtype(np.int32)
    words = -(-int(np.prod(shape)) * kind.itemsize // 4)

    def places(room):
        return room.view(np.uint8)[: int(np.prod(shape)) * kind.itemsize].view(kind).reshape(shape)

    y, room = run(
        lambda y, room, _: pooling.max_pool(
            x, y, places(room), window
        ),
        shape, (words,), inputs=(x,),
    )  # fmt: skip
    dy = normal(np.random.default_rng(seed), *shape)
    taken = places(room).copy()
    (dx,) = run(
        lambda dx, _: pooling.max_pool_gradient(dy, taken, dx, window),
        x.shape, inputs=(dy, taken),
    )  # fmt: skip
    summed = np.zeros(x.shape)
    for (i, j), at in reads:
        if within(x, at):
            summed[:, at[0], at[1]] += np.where(
                taken[:, i, j] == at[0] * x.shape[2] + at[1], dy[:, i, j], 0
            )

    assert np.array_equal(y, exact.astype(np.float32), equal_nan=True)
    assert np.array_equal(taken, place)
    assert relative_error(dx, summed) < 1e-6


@pytest.mark.parametrize("seed", sampled(range(60)))
def test_the_average_and_its_gradient_are_those_of_numpy(seed):
    x, shape, window, reads = drawn(seed)
    up, left, down, right = window.pads if window.padded else (0,) * 4
    exact, count = np.zeros(shape), np.zeros(shape[1:3])
    for place, at in reads:
        if within(x, at):
            exact[(slice(None), *place)] += x[:, at[0], at[1]]
        count[place] += -up <= at[0] < x.shape[1] + down and -left <= at[1] < x.shape[2] + right
    count = np.maximum(count, 1)[..., None]
    (y,) = run(
        lambda y, _: pooling.average_pool(x, y, window),
        shape, inputs=(x,),
    )  # fmt: skip
    dy = normal(np.random.default_rng(seed), *shape)
    (dx,) = run(
        lambda dx, _: pooling.average_pool_gradient(dy, dx, window),
        x.shape, inputs=(dy,),
    )  # fmt: skip
    summed = np.zeros(x.shape)
    for (i, j), at in reads:
        if within(x, at):
            summed[:, at[0], at[1]] += (dy / count)[:, i, j]

    assert relative_error(y, exact / count) < 1e-6
    assert relative_error(dx, summed) < 1e-6
