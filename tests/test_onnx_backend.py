"""The standard's own test suite, on our kernels."""

from __future__ import annotations

import warnings

import onnx.backend.test
import pytest
from onnx_backend_exclusions import EXCLUSIONS

import gradtool.backend

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # some tests of the suite divide by zero to make their data
    suite = onnx.backend.test.BackendTest(gradtool.backend, __name__)
for pattern in EXCLUSIONS:
    suite.exclude(pattern)
suite.exclude("_cuda$")
globals().update(suite.test_cases)
