"""Gradients of random control flow; `benchmarks/loops.py` tries as many as it is told to."""

import pytest
from conftest import sampled
from loop_checks import check, exclusion
from random_cells import Cells
from random_loops import Draw

pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("seed", sampled([*range(16), 26]))
def test_the_gradient_of_random_control_flow_is_valid_and_right(seed, tmp_path):
    draw = Draw(seed)
    proto = draw.model()
    reason = exclusion(proto)
    if reason:
        pytest.skip(reason)
    check(proto, tmp_path, draw.feeds())


@pytest.mark.sample(5)
@pytest.mark.parametrize("seed", sampled(range(12)))
def test_the_gradient_of_a_recurrent_network_as_a_loop_is_valid_and_right(seed, tmp_path):
    network = Cells(seed)
    check(network.model(), tmp_path, network.feeds())


def test_recurrent_networks_are_drawn_of_every_kind():
    used = set()
    for seed in range(12):
        network = Cells(seed)
        network.model()
        used |= network.used

    assert used >= {"simple", "gru", "lstm", "backward", "lengths", "a counter is carried", "Slice"}
    assert used >= {"open sizes", "the body's own", "captured"}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 500, 50))
def test_the_gradients_of_many_more_are(first, tmp_path):
    for seed in range(first, first + 50):
        draw = (Draw, Cells)[seed % 2](seed)
        proto = draw.model()
        if not exclusion(proto):
            check(proto, tmp_path, draw.feeds())
