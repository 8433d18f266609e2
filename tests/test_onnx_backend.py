"""The standard's own test suite, on our kernels."""

from __future__ import annotations

import re
import warnings

import onnx.backend.test
from onnx_backend_exclusions import EXCLUSIONS

import gradtool.backend

LEAST = {"NodeModel": 1870, "SimpleModel": 23, "PyTorchConvertedModel": 82,
         "PyTorchOperatorModel": 35}  # fmt: skip

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # some tests of the suite divide by zero to make their data
    suite = onnx.backend.test.BackendTest(gradtool.backend, __name__)
for pattern in EXCLUSIONS:
    suite.exclude(pattern)
for category in LEAST:
    case = suite.test_cases[f"OnnxBackend{category}Test"]
    for name in [n for n in vars(case) if n.endswith("_cuda")]:
        delattr(case, name)
    globals()[case.__name__] = case
del case


def test_no_more_is_left_out_than_the_list_says():
    for category, least in LEAST.items():
        names = [n for n in vars(globals()[f"OnnxBackend{category}Test"]) if n.endswith("_cpu")]
        left_out = [n for n in names if any(re.search(p, n) for p in EXCLUSIONS)]

        assert len(names) - len(left_out) >= least


def test_every_exclusion_matches_a_test():
    names = [n for items in suite._test_items.values() for n in items]

    assert [p for p in EXCLUSIONS if not any(re.search(p, n) for n in names)] == []
