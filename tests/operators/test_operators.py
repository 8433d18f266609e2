"""Every case of the table, through the generic checks."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter

import cases
import numpy as np
import pytest
from checkers import (
    check_export,
    check_gradient,
    check_inplace,
    check_kernel,
    check_symbolic,
)
from conftest import sampled

from gradtool.graph.families import FAMILIES

for family in FAMILIES:
    if find_spec(f"operators.{family}"):
        import_module(f"operators.{family}")
CASES = cases.CASES
DIFFERENTIATED = [c for c in CASES if c.gradient]
RANKED_BY_SIZE = [c for c in CASES if c.op == "Squeeze" and len(c.inputs) == 1]
SIZED = [c for c in DIFFERENTIATED if c not in RANKED_BY_SIZE]
drawn = partial(sampled, by=attrgetter("op"))


@pytest.mark.parametrize("case", drawn(DIFFERENTIATED), ids=lambda c: c.id)
def test_gradients_agree_with_finite_differences(case):
    with np.errstate(all="ignore"):
        check_gradient(case)


@pytest.mark.parametrize("case", drawn(c for c in CASES if c.ort), ids=lambda c: c.id)
def test_kernels_agree_with_onnxruntime(case):
    pytest.importorskip("onnxruntime")
    with np.errstate(all="ignore"):
        check_kernel(case)


@pytest.mark.parametrize("case", drawn(c for c in DIFFERENTIATED if c.ort), ids=lambda c: c.id)
def test_gradient_graphs_run_in_stock_onnxruntime(case):
    pytest.importorskip("onnxruntime")
    with np.errstate(all="ignore"):
        check_export(case)


@pytest.mark.parametrize("case", drawn(c for c in SIZED if c.ort), ids=lambda c: c.id)
def test_gradient_graphs_are_right_for_unknown_sizes(case):
    pytest.importorskip("onnxruntime")
    with np.errstate(all="ignore"):
        check_symbolic(case)


@pytest.mark.parametrize("case", drawn(CASES), ids=lambda c: c.id)
def test_kernels_may_write_over_the_inputs_that_they_name(case):
    with np.errstate(all="ignore"):
        check_inplace(case)
