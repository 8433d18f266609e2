"""Attributes and operands that no reader takes, or that readers take differently, are refused."""

import pytest

from gradtool import io
from gradtool.errors import ModelError

REFUSED = {
    "y = ReduceSum <keepdims = 4> (x)": "keepdims 4 must be 0 or 1",
    "y = ReduceMax <keepdims = -65> (x)": "keepdims -65 must be 0 or 1",
    "y = ReduceSum <noop_with_empty_axes = 2> (x)": "noop_with_empty_axes 2 must be 0 or 1",
    'y = MaxPool <kernel_shape = [2], auto_pad = "same"> (x)': "auto_pad 'same' must be one of",
    'y = ConvTranspose <auto_pad = "same"> (x, w)': "auto_pad 'same' must be one of",
    "y = DequantizeLinear <axis = 3> (q, s)": "axis 3 is out of range for 3 axes",
    "y = DequantizeLinear <axis = 2> (q, s)": "2 scales are not one for each of 5 elements",
    "y = DequantizeLinear <axis = 0> (q, s)": "2 scales are not one for each of 3 elements",
}


@pytest.mark.parametrize("body", REFUSED)
def test_a_node_is_refused_by_name(run, model, body):
    path = model(
        "g (float[3, 2, 5] x, float[2, 2, 3] w, int8[3, 2, 5] q, float[2] s) => (float y) "
        f"{{ {body} }}"
    )
    done = run("grad", path, "--wrt", "x")

    assert done.code == 2
    assert REFUSED[body] in done.err
    assert "node that writes 'y'" in done.err


def test_a_graph_may_give_integers_of_a_dynamic_quantiser(run, model):
    path = model(
        "g (float[3, 4] x) => (uint8[3, 4] y, float s, uint8 z) {"
        " y, s, z = DynamicQuantizeLinear (x) }"
    )

    assert run("grad", path).code == 0


LOSSES = {  # scores, labels, weights: what is wrong, or nothing
    ("3", "3", "3"): r"its scores have shape \[3\]; there must be examples and classes",
    ("", "4", "3"): r"its scores have shape \[\]; there must be",
    ("4, 3", "5", "3"): r"its labels have shape \[5\], scores of \[4, 3\] need \[4\]",
    ("4, 3", "4, 1", "3"): r"its labels have shape \[4, 1\]",
    ("4, 3, 5", "4, 3", "3"): r"its labels have shape \[4, 3\], scores .* need \[4, 5\]",
    ("4, 3", "4", "4"): r"its weights have shape \[4\], scores of \[4, 3\] need \[3\]",
    ("4, 3", "4", "1, 3"): r"its weights have shape \[1, 3\]",
    ("n, 3, m", "n, m", "3"): "",
    ("n, c", "4", "3"): "",
}
OPS = ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")


@pytest.mark.parametrize("sizes", LOSSES)
@pytest.mark.parametrize("op", OPS)
def test_labels_and_weights_fit_the_scores(op, sizes, model):
    scores, labels, weights = (f"[{each}]" if each else "" for each in sizes)
    path = model(
        f"g (float{scores} x, int64{labels} t, float{weights} w) => (y) {{ y = {op} (x, t, w) }}"
    )
    if not LOSSES[sizes]:
        io.load(path)
        return
    with pytest.raises(ModelError, match=f"{LOSSES[sizes]}|nference"):
        io.load(path)
