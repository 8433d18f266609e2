import numpy as np
import pytest
from native_calls import each_instruction_set, needs_library, normal, relative_error, run

from gradtool.native import optimizers

pytestmark = [needs_library, *each_instruction_set]
SIZES = (0, 1, 15, 16385, 70001)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("l2", [0.0, 0.1])
def test_momentum_is_the_formula_in_float64(size, nesterov, l2):
    x, g, v = normal(np.random.default_rng(size), 3, size)
    found = run(
        lambda new_x, new_v, _: optimizers.momentum(
            x, g, v, new_x, new_v, rate=0.3, momentum=0.9, dampened=0.8, nesterov=nesterov,
            l2=l2,
        ),
        (size,), (size,), inputs=(x, g, v),
    )  # fmt: skip

    x, g, v = (each.astype(float) for each in (x, g, v))
    g = g + l2 * x
    v = 0.9 * v + 0.8 * g
    x = x - 0.3 * (g + 0.9 * v if nesterov else v)
    assert relative_error(found[0], x) < 3e-7
    assert relative_error(found[1], v) < 3e-7


@pytest.mark.parametrize("size", SIZES)
def test_descent_has_no_state(size):
    x, g = normal(np.random.default_rng(size), 2, size)
    (found,) = run(
        lambda new_x, _: optimizers.momentum(x, g, None, new_x, None, rate=0.3, l2=0.1, before=0.9),
        (size,),
        inputs=(x, g),
    )

    assert relative_error(found, 0.9 * x.astype(float) - 0.3 * (g + 0.1 * x.astype(float))) < 3e-7


@pytest.mark.parametrize("size", SIZES)
def test_adam_is_the_formula_in_float64(size):
    x, g, v, h = normal(np.random.default_rng(size), 4, size)
    h = h * h
    found = run(
        lambda *made: optimizers.adam(
            x, g, v, h, *made[:3], rate=0.3, share1=0.1, share2=0.01, epsilon=1e-3, root=1 / 1.7,
            l2=0.1, before=0.95,
        ),
        (size,), (size,), (size,), inputs=(x, g, v, h),
    )  # fmt: skip

    x, g, v, h = (each.astype(float) for each in (x, g, v, h))
    g = g + 0.1 * x
    v = v + 0.1 * (g - v)
    h = h + 0.01 * (g * g - h)
    x = 0.95 * x - 0.3 * v / (1.7 * np.sqrt(h) + 1e-3)
    for got, exact in zip(found, (x, v, h), strict=True):
        assert relative_error(got, exact) < 1e-6


@pytest.mark.parametrize("size", SIZES)
def test_adagrad_is_the_formula_in_float64(size):
    x, g, h = normal(np.random.default_rng(size), 3, size)
    h = h * h
    found = run(
        lambda *made: optimizers.adagrad(
            x, g, h, *made[:2], rate=0.3, epsilon=1e-3, l2=0.1,
        ),
        (size,), (size,), inputs=(x, g, h),
    )  # fmt: skip

    x, g, h = (each.astype(float) for each in (x, g, h))
    g = g + 0.1 * x
    h = h + g * g
    assert relative_error(found[0], x - 0.3 * g / (np.sqrt(h) + 1e-3)) < 1e-6
    assert relative_error(found[1], h) < 3e-7


def test_a_step_in_place_has_the_bits_of_one_beside():
    x, g, v = normal(np.random.default_rng(0), 3, 40000)
    beside = [np.empty_like(x), np.empty_like(v)]
    step = {"rate": 0.1, "momentum": 0.9}
    optimizers.momentum(x, g, v, *beside, **step)()
    optimizers.momentum(x, g, v, x, v, **step)()

    assert beside[0].tobytes() == x.tobytes()
    assert beside[1].tobytes() == v.tobytes()


def test_numbers_that_are_arrays_are_read_each_time():
    x, g = normal(np.random.default_rng(1), 2, 100)
    found, rate = np.empty_like(x), np.array(0.5, np.float32)
    step = optimizers.momentum(x, g, None, found, None, rate=rate)
    step()
    first = found.copy()
    rate[...] = 0.25
    step()

    np.testing.assert_allclose(first, x - 0.5 * g, rtol=1e-6)
    np.testing.assert_allclose(found, x - 0.25 * g, rtol=1e-6)


def test_an_infinity_without_a_penalty_stays_what_it_is():
    x = np.full(33, -np.inf, np.float32)
    none = np.zeros_like(x)
    rate = {"rate": 0.3, "before": 0.9}
    (descended,) = run(
        lambda new_x, _: optimizers.momentum(x, none, None, new_x, None, **rate),
        (33,), inputs=(x, none),
    )  # fmt: skip
    adapted, *_ = run(
        lambda *made: optimizers.adam(
            x, none, none, none, *made[:3], share1=0.1, share2=0.01, epsilon=1e-3, root=1.0, **rate
        ),
        (33,), (33,), (33,), inputs=(x, none),
    )  # fmt: skip

    assert np.array_equal(x, descended)
    assert np.array_equal(x, adapted)
