"""Keys of the past lie before those that are new: the causal mask counts from their number on."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import gradtool as gt

TEXT = """<ir_version: 10, opset_import: ["" : 23]>
g (float[1, 1, Q, 2] q, float[1, 1, 3, 2] k, float[1, 1, 3, 2] v,
   float[1, 1, 2, 2] past_k, float[1, 1, 2, 2] past_v)
    => (float[1, 1, Q, 2] y, float[1, 1, 5, 2] all_k, float[1, 1, 5, 2] all_v)
{ y, all_k, all_v = Attention <is_causal=1> (q, k, v, , past_k, past_v) }"""


@pytest.mark.parametrize("queries", [1, 2, 3])
def test_a_query_sees_the_past_and_the_new_keys_up_to_itself(queries):
    text = TEXT.replace("Q", str(queries))
    training = gt.grad(gt.load(onnx.parser.parse_model(text)), loss="sum:y", wrt=["k", "v"])
    random = np.random.default_rng(queries)
    feeds = {
        value.name: random.normal(size=list(value.shape)).astype(np.float32)
        for value in training.model.graph.inputs
    }
    found = gt.run(training, feeds).gradients

    for gradient in found.values():
        seen = np.abs(gradient[0, 0]).sum(-1) > 0
        np.testing.assert_array_equal(seen, np.arange(3) < queries)


def test_sizes_of_the_past_may_be_open_where_those_of_new_keys_are_known():
    text = TEXT.replace("Q", "3").replace("1, 1, 2, 2", "B, G, P, 2").replace("1, 5, 2", "G, T, 2")
    training = gt.grad(gt.load(onnx.parser.parse_model(text)), loss="sum:y", wrt=["past_k", "v"])
    random = np.random.default_rng(0)
    sizes = {"q": 3, "k": 3, "v": 3, "past_k": 2, "past_v": 2}
    feeds = {n: random.normal(size=(1, 1, s, 2)).astype(np.float32) for n, s in sizes.items()}
    found = gt.run(training, feeds).gradients

    shapes = {name: gradient.shape for name, gradient in found.items()}
    assert shapes == {"past_k": (1, 1, 2, 2), "v": (1, 1, 3, 2)}
