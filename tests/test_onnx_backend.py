"""The standard's own test suite, on our kernels."""

from __future__ import annotations

import re
import unittest
import warnings

import backend
import onnx.backend.test
import pytest
from onnx_backend_exclusions import EXCLUSIONS

# How many tests of each part run; making those of nodes takes seconds.
LEAST = {"NodeModel": 1870, "SimpleModel": 23, "PyTorchConvertedModel": 82,
         "PyTorchOperatorModel": 35}  # fmt: skip
SHARES = 4

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def suite():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some tests of the suite divide by zero to make their data
        suite = onnx.backend.test.BackendTest(backend, __name__)
    for pattern in EXCLUSIONS:
        suite.exclude(pattern)
    return suite


def named(suite, category):
    """The tests of a part, and their names on the CPU."""
    case = suite.test_cases[f"OnnxBackend{category}Test"]
    return case, sorted(name for name in vars(case) if name.endswith("_cpu"))


@pytest.mark.sample(1, 2)
@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("category", LEAST)
def test_what_is_not_left_out_passes(suite, category, share):
    case, names = named(suite, category)
    result = unittest.TestResult()
    unittest.TestSuite(map(case, names[share::SHARES])).run(result)

    assert result.testsRun == len(names[share::SHARES]) > 0
    assert "\n".join(f"{test}: {trace}" for test, trace in result.failures + result.errors) == ""


@pytest.mark.parametrize("category", LEAST)
def test_no_more_is_left_out_than_the_list_says(suite, category):
    _, names = named(suite, category)
    left_out = [n for n in names if any(re.search(p, n) for p in EXCLUSIONS)]

    assert len(names) - len(left_out) >= LEAST[category]


def test_every_exclusion_matches_a_test(suite):
    names = [n for items in suite._test_items.values() for n in items]

    assert [p for p in EXCLUSIONS if not any(re.search(p, n) for n in names)] == []
