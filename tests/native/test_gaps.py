from functools import partial

import numpy as np
import pytest
from conftest import sampled
from native_calls import each_instruction_set, needs_library

from gradtool.native import gaps
from gradtool.planning.packing.gaps import FAR, Rule, fill_by_numpy, skyline_by_numpy
from gradtool.planning.packing.problem import parts
from gradtool.planning.packing.squeaky import WAYS, Turns

pytestmark = [needs_library, *each_instruction_set]
SEEDS = pytest.mark.parametrize("seed", sampled(range(60)))


def drawn(seed):
    """The largest part of a random problem: few or many buffers, small or huge, alike or not."""
    rng = np.random.default_rng(seed)
    count, most = int(rng.integers(1, 200)), 10 ** int(rng.integers(1, 12))
    size = rng.integers(1, most, count)
    first = rng.integers(0, 60, count)
    last = first + rng.integers(0, 30, count)
    if seed % 3 == 0:
        size = rng.choice(size[:4], count)
    return rng, max(parts(first, last, size), key=lambda part: len(part.size))


@SEEDS
@pytest.mark.parametrize("rule", Rule)
def test_buffers_lie_where_numpy_puts_them(seed, rule):
    rng, part = drawn(seed)
    order = rng.permutation(len(part.size))
    fixed, order = np.split(order, [int(rng.integers(0, 1 + len(order) // 3))])
    twins = [np.full(len(part.size), -1) for _ in range(2)]
    for found in twins:
        fill_by_numpy(part, fixed, found, np.empty(0, np.int64), FAR, FAR, Rule.LOWEST)
    around = fixed[np.argsort(twins[0][fixed], kind="stable")]
    finite = int(part.peak_live * rng.uniform(0.8, 1.3))
    capacity, most = (FAR, FAR) if seed % 2 else (finite, int(rng.integers(0, 9)))

    wanted = fill_by_numpy(part, order, twins[0], around, capacity, most, rule)
    left, counts = np.empty_like(order), np.zeros(3, np.int64)
    gaps.fill(
        part.start, part.stop, part.size, order, around, twins[1], left, counts,
        np.empty(gaps.PLACED * len(part.size), np.int64),
        capacity=capacity, most=most, rule=rule,
    )()  # fmt: skip

    assert np.array_equal(*twins)
    assert (left[: counts[0]].tolist(), counts[2], counts[1]) == wanted


@SEEDS
def test_a_skyline_is_that_of_numpy(seed):
    rng, part = drawn(seed)
    order = rng.permutation(len(part.size))
    found, work = np.empty_like(order), np.empty(gaps.RESTING * len(order), np.int64)
    gaps.skyline(part.start, part.stop, part.size, order, found, work)()

    assert np.array_equal(found, skyline_by_numpy(part, order))


@pytest.mark.sample(4)
@SEEDS
def test_packing_again_and_again_is_that_of_numpy(seed, monkeypatch):
    """The same lowest packing and the same blame, also where the turns come in several parts."""
    rng, part = drawn(seed)
    least = part.peak_live if seed % 2 else int(part.peak_live * rng.uniform(0.5, 1.2))
    keys, quarters = WAYS[seed % len(WAYS)]
    monkeypatch.setattr(gaps, "repeat", partial(gaps.repeat))
    native, numpy = (Turns(part, least, keys, quarters, most=12) for _ in range(2))
    for turns in (1, 4, 7):
        native.call(turns)()
        numpy.go_by_numpy(turns)

        assert native.lowest == numpy.lowest == int((native.best + part.size).max())
        assert np.array_equal(native.best, numpy.best)
        assert np.array_equal(native._blamed, numpy._blamed)
