"""Gradients of random control flow; `benchmarks/loops.py` tries as many as it is told to."""

import pytest
from loop_checks import check, exclusion
from random_loops import Draw

pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("seed", [*range(16), 26])
def test_the_gradient_of_random_control_flow_is_valid_and_right(seed, tmp_path):
    proto = Draw(seed).model()
    reason = exclusion(proto)
    if reason:
        pytest.skip(reason)
    check(proto, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 500, 50))
def test_the_gradients_of_many_more_are(first, tmp_path):
    for seed in range(first, first + 50):
        proto = Draw(seed).model()
        if not exclusion(proto):
            check(proto, tmp_path)
