"""Turns of loops taken again: the same bits as with what they stacked, here and elsewhere."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from conftest import swept
from graphs import parse
from loop_checks import opened
from random_cells import Cells
from random_turns import Turns

import gradtool as gt
from gradtool.exec import verify
from gradtool.passes._loops import pairs
from gradtool.passes._segments import INNER
from gradtool.passes.turns_again import take_again
from gradtool.workloads.recompute import prepared


def rewritten(training, lengths, *, inside=False):
    """The graph whose one loop takes so many turns again, and of those; loops `inside` one each."""
    model = prepared(training.model)
    (pair,) = pairs(model)
    take_again(model, {pair.name + INNER * level: n for level, n in enumerate(lengths)})
    if inside:
        names = [each.name for each in pairs(model) if not each.name.startswith(pair.name)]
        take_again(model, dict.fromkeys(names, 1))
    return model


def same(ours, theirs, rtol=0.0) -> None:
    """Equal arrays; onnxruntime fuses what stands in one body, which may change the last bit."""
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        largest = np.abs(array).max()
        np.testing.assert_allclose(ours[name], array, rtol=0, atol=rtol * largest, err_msg=name)


def stock(model, path, feeds):
    gt.save(model, path, force=True)
    onnx.checker.check_model(path, full_check=True)
    session = opened(path.read_bytes())
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", swept(200, 5))
def test_turns_of_random_loops_are_taken_again_with_the_same_bits(seed, tmp_path):
    pytest.importorskip("onnxruntime")
    drawn = Turns(seed)
    feeds = drawn.feeds()
    training = gt.grad(gt.load(drawn.model()), input_grad=["*"])
    kept = gt.run(training, feeds)
    elsewhere = stock(training.model, tmp_path / "kept.onnx", feeds)
    verify.finite_differences(training.model, feeds, kept)
    if not pairs(prepared(training.model)):
        pytest.skip("the loop stacks nothing for its gradient")
    for lengths in drawn.lengths():
        model = rewritten(training, lengths, inside=lengths == (1,))
        same(gt.run(model, feeds).gradients, kept.gradients)
        same(stock(model, tmp_path / "again.onnx", feeds), elsewhere, 1e-5)
        assert gt.plan(gt.load(tmp_path / "again.onnx")).peak == gt.plan(model).peak


def test_random_loops_are_drawn_of_every_kind():
    used, counts = set(), set()
    for seed in range(10):
        drawn = Turns(seed)
        drawn.model()
        used |= drawn.used
        counts.add(drawn.count)

    assert used >= {"Scan", "Loop", "forward", "backward", "MatMul", "a loop in a loop"}
    assert len(counts) > 3


@pytest.mark.parametrize("seed", range(4))
def test_turns_of_a_loop_of_unknown_length_are_taken_again_one_at_a_time(seed, tmp_path):
    pytest.importorskip("onnxruntime")
    network = Cells(seed)
    training = gt.grad(gt.load(network.model()), input_grad=["x"])
    feeds = network.feeds()
    kept = gt.run(training, feeds)
    model = rewritten(training, (1,))

    same(gt.run(model, feeds).gradients, kept.gradients)
    elsewhere = stock(training.model, tmp_path / "kept.onnx", feeds)
    same(stock(model, tmp_path / "again.onnx", feeds), elsewhere, 1e-5)


DROPOUT = """g (float[4, 8] h, float[6] x, float[8, 8] w) => (l)
        <float half = {0.5}, bool on = {1}> {
    y = Scan <num_scan_inputs = 1, body = b (float[4, 8] s, float u) => (float[4, 8] n) {
        m = MatMul (s, w) t = Tanh (m) d, mask = Dropout <seed = 3> (t, half, on)
        e = Sigmoid (d) f = Mul (e, d) n = Sin (f)
    }> (h, x)
    l = ReduceSum <keepdims = 0> (y)
}"""


def test_what_a_turn_drew_is_kept_and_not_drawn_again():
    model = parse(DROPOUT, "w")
    training = gt.grad(model, wrt=["w"], input_grad=["h"])
    feeds = {
        "h": np.random.default_rng(0).standard_normal((4, 8)).astype("f"),
        "x": np.zeros(6, "f"),
    }
    kept = gt.run(training, feeds)
    again = rewritten(training, (1,))
    loops = [n for n in again.graph if n.op_type == "Scan"]
    drawing = [
        [n.op_type for n in loop.attributes["body"].as_graph()].count("Dropout") for loop in loops
    ]

    same(gt.run(again, feeds).gradients, kept.gradients)
    assert drawing == [1, 0]
    assert gt.plan(again).peak < gt.plan(training).peak
    with pytest.raises(ValueError, match="has 2 turns to take again"):
        rewritten(training, (2,))
