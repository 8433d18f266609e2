"""Kernels whose rounding depends on how they go about it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from gradtool.errors import UsageError
from gradtool.graph.specs import Spec
from gradtool.ops.kernels import find
from gradtool.ops.shared.call import call


def run(op, inputs, shape, dtype, **attributes):
    out = [Spec(tuple(shape), np.dtype(dtype))]
    with np.errstate(all="ignore"):
        return call(np, find("", op, 22), inputs, out, attributes)[0]


@pytest.mark.parametrize("axes", [(0,), (0, 1), (1,), (2,), (0, 1, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_long_sums_keep_their_digits(axes, dtype):
    x = np.random.default_rng(1).uniform(0.5, 1.5, (60, 3000, 3)).astype(dtype)
    exact = x.astype(np.float64).mean(axes, keepdims=True)
    found = run("ReduceMean", [x, np.array(axes)], exact.shape, dtype)

    np.testing.assert_allclose(found, exact, rtol=2e-6 if dtype == np.float32 else 5e-4)


@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 4e-7), (np.float64, 1e-15)])
def test_the_error_function_is_accurate_relatively(dtype, error):
    x = np.linspace(-7, 7, 200001, dtype=dtype)
    found = run("Erf", [x], x.shape, dtype)

    np.testing.assert_allclose(found, special.erf(x.astype(np.float64)), rtol=error, atol=1e-30)


def test_the_error_function_ends_at_one():
    x = np.array([-np.inf, -50, 50, np.inf, np.nan], np.float32)

    np.testing.assert_array_equal(run("Erf", [x], x.shape, x.dtype), [-1, -1, 1, 1, np.nan])


@pytest.mark.parametrize("op", ["Sigmoid", "Softplus", "Mish", "Gelu", "Elu", "HardSwish"])
def test_activations_of_extremes_are_finite_or_the_limit(op):
    x = np.array([-1e30, -1000, 1000, 1e30], np.float32)
    found = run(op, [x], x.shape, x.dtype)

    assert not np.isnan(found).any()
    limits = {"Sigmoid": (0, 1), "Elu": (-1, 1000)}.get(op, (0, 1000))
    assert (found[1], found[2]) == limits


def test_integers_divide_as_in_c():
    a, b = np.array([-7, 7, -7, 7, 6]), np.array([2, -2, -2, 2, 3])

    assert run("Div", [a, b], (5,), np.int64).tolist() == [-3, -3, 3, 3, 2]
    assert run("Mod", [a, b], (5,), np.int64).tolist() == [1, -1, -1, 1, 0]
    assert run("Mod", [a, b], (5,), np.int64, fmod=1).tolist() == [-1, 1, -1, 1, 0]


@pytest.mark.parametrize("op", ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"])
@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_that_is_no_class_is_refused(op, label):
    x = np.zeros((2, 3), np.float32)

    with pytest.raises(UsageError, match="a label is not one of the 3 classes"):
        run(op, [x, np.array([0, label])], (), np.float32)


def test_sums_over_nothing_are_their_neutral_elements():
    x, axes = np.zeros((2, 0), np.float32), np.array([1])
    for op, value in (
        ("ReduceSum", 0),
        ("ReduceProd", 1),
        ("ReduceMax", -np.inf),
        ("ReduceMin", np.inf),
    ):
        assert run(op, [x, axes], (2,), np.float32, keepdims=0).tolist() == [value] * 2
    assert run("ReduceLogSumExp", [x, axes], (2,), np.float32, keepdims=0).tolist() == [-np.inf] * 2
