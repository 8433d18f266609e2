"""Attention in plain operators becomes one node, with the same gradients and less kept."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from attentions import draw, floats
from conftest import sampled, swept
from onnx import helper

import gradtool as gt
from gradtool.ops.attention import body_rows as _rows
from gradtool.passes.residuals import residuals


def count(training, op="FusedAttention"):
    return sum(node.op_type == op for node in training.model.graph)


def differentiated(made, model, **options):
    return gt.grad(gt.load(model), input_grad=floats(made), **options)


def same(found, expected, rtol):
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        size = np.max(np.abs(gradient[np.isfinite(gradient)]), initial=1.0)
        np.testing.assert_allclose(
            found[name], gradient, rtol=rtol, atol=rtol * size, err_msg=name, equal_nan=True
        )


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", sampled(range(120)))
def test_gradients_are_those_of_the_plain_form_in_float64(seed):
    made, model = draw(seed)
    plain = differentiated(made, model, fuse_attention=False)
    fused = differentiated(made, model)

    assert count(plain) == 0
    assert count(fused) == made.fits, made.drawn
    assert count(fused, "Softmax") == (not made.fits)
    expected = gt.run(plain, made.feeds)
    found = gt.run(fused, made.feeds)
    same(found.outputs, expected.outputs, 1e-10)
    same(found.gradients, expected.gradients, 1e-6)


@pytest.mark.sample(2)
@pytest.mark.stock
@pytest.mark.parametrize("seed", swept(24, 8))
def test_stock_onnxruntime_runs_the_written_blocks(seed, tmp_path, monkeypatch):
    made, model = draw(120 + seed, np.float32, opset=18)
    expected = gt.run(differentiated(made, model, fuse_attention=False), made.feeds)
    monkeypatch.setattr(_rows, "SCORES", 1)
    monkeypatch.setattr(_rows, "ROWS", 2)
    path = tmp_path / "blocks.onnx"
    gt.save(differentiated(made, model), path)
    written = onnx.load(path)

    blocks = any(n.op_type == "Scan" for n in written.graph.node)
    assert blocks == (made.fits and made.drawn["s"] > 2 and not made.drawn["open_batch"])
    assert all(n.domain == "" for n in written.graph.node)
    same(gt.run(gt.load(path), made.feeds, engine="ort").gradients, expected.gradients, 1e-4)
    loaded = gt.load(path)
    assert sum(n.op_type == "FusedAttention" for n in loaded.graph) == made.fits


@pytest.mark.parametrize("seed", swept(16, 8))
def test_what_is_planned_is_measured(seed):
    made, model = draw(144 + seed, np.float32)
    result = gt.run(differentiated(made, model), made.feeds, measure=True)

    assert 0 <= result.measurement.planned - result.measurement.high_water < 64  # alignment
    assert result.measurement.outside < 2**15


@pytest.mark.parametrize("seed", sampled(range(160, 170)))
def test_second_order_is_that_of_the_plain_form(seed):
    made, model = draw(seed, masks=["added"], scale="queries", between="")
    second = []
    for fuse in (False, True):
        first = differentiated(made, model, fuse_attention=fuse)
        loss = "sum:" + first.gradients["q"]
        second.append(gt.run(gt.grad(first, loss=loss, input_grad=floats(made)), made.feeds))

    same(second[1].gradients, second[0].gradients, 1e-6)


@pytest.mark.parametrize("kind", ["causal", "causal flags"])
def test_a_mask_that_is_known_to_be_causal_is_an_attribute(kind):
    made, model = draw(5, masks=[kind, "added"], between="", opset=20)
    node = next(n for n in differentiated(made, model).model.graph if n.op_type == "FusedAttention")

    assert node.attributes.get_int("is_causal", 0) == 1
    assert len(node.inputs) == 4


@pytest.mark.sample(2)
@pytest.mark.stock
@pytest.mark.parametrize("low", sampled([-300.0, -1e4, -1e9, float(np.finfo(np.float32).min)], 2))
@pytest.mark.parametrize("seed", swept(4, 2))
def test_rows_that_only_what_is_low_hides_share_it_evenly(seed, low):
    made, model = draw(170 + seed, np.float32, masks=["added"], between="", opset=18)
    rng = np.random.default_rng(170 + seed)
    mask = made.feeds["m0"]
    rows = rng.random((*mask.shape[:-1], 1)) < 0.5
    mask[...] = np.where(rows | (rng.random(mask.shape) < 0.3), np.float32(low), 0)
    expected = gt.run(differentiated(made, model, fuse_attention=False), made.feeds)
    fused = differentiated(made, model)

    for how in ({}, {"kernels": "native"}, {"engine": "ort"}):
        same(gt.run(fused, made.feeds, **how).gradients, expected.gradients, 2e-5)


@pytest.mark.parametrize("kind", ["kept", "hidden", "added"])
@pytest.mark.parametrize("between", ["", "safe"])
def test_a_row_that_sees_nothing_is_what_its_softmax_is(kind, between):
    made, model = draw(7, masks=[kind], between=between, opset=18)
    mask = made.feeds["m0"]
    mask[..., :] = {"kept": False, "hidden": True, "added": -np.inf}[kind]
    expected = gt.run(differentiated(made, model, fuse_attention=False), made.feeds)
    found = gt.run(differentiated(made, model), made.feeds)

    same(found.outputs, expected.outputs, 1e-10)
    if between == "safe":
        assert all(np.all(gradient == 0) for gradient in found.gradients.values())
    else:
        same(found.gradients, expected.gradients, 1e-10)


# What is left as it is: the drawn model, and what is done to its nodes.
def read_elsewhere(model, op):
    """The first result of an operator is an output, too."""
    name = next(n for n in model.graph.node if n.op_type == op).output[0]
    model.graph.output.append(helper.make_empty_tensor_value_info(name))


def test_what_somebody_else_reads_stays():
    for op in ("Softmax", "MatMul"):
        made, model = draw(3, masks=["added"], scale="none", between="", opset=20)
        read_elsewhere(model, op)
        training = differentiated(made, model, loss=model.graph.output[0].name)
        assert count(training) == 0
        assert count(training, "Softmax") == 1


def test_a_dropout_that_drops_stays():
    made, model = draw(3, masks=[], between="Dropout", opset=20)
    assert count(differentiated(made, model)) == 1
    assert count(differentiated(made, model, train_mode=True)) == 0


def test_scores_where_no_gradient_may_flow_stay():
    _, model = draw(3, masks=[], between="", opset=20)
    barred = next(n for n in model.graph.node if n.op_type == "Softmax").input[0]
    training = gt.grad(gt.load(model), input_grad=["v"], no_grad=[barred])
    assert count(training) == 0


def test_a_scale_that_is_trained_is_no_number():
    made, model = draw(3, scale="scores", masks=[], between="", opset=20, flat=False, shared="")
    scale = next(n for n in model.graph.node if n.op_type == "Mul").input[1]
    options = {"wrt": [scale], "input_grad": floats(made)}
    assert count(gt.grad(gt.load(model), **options)) == 0


@pytest.mark.parametrize("change", ["axis", "mask"])
def test_other_layouts_stay(change):
    made, model = draw(3, masks=["added"], scale="none", between="", opset=20, flat=False)
    if change == "axis":
        softmax = next(n for n in model.graph.node if n.op_type == "Softmax")
        softmax.attribute[0].i = -2
    else:  # one column, which is repeated
        mask = next(i for i in model.graph.input if i.name == "m0")
        mask.type.tensor_type.shape.dim[-1].dim_value = 1
    assert count(gt.grad(gt.load(model), input_grad=floats(made))) == 0


def test_a_mask_gets_a_gradient_only_where_it_is_asked_for():
    _, model = draw(11, masks=["added"], between="", opset=20)
    for wanted in (["q"], ["q", "m0"]):
        training = gt.grad(gt.load(model), input_grad=wanted)
        node = next(n for n in training.model.graph if n.op_type == "FusedAttentionGrad")
        assert len(node.outputs) == 2 + len(wanted)


def test_models_without_attention_are_written_alike(tiny_model, tmp_path):
    for name, fuse in (("a", True), ("b", False)):
        gt.save(gt.grad(gt.load(tiny_model), fuse_attention=fuse), tmp_path / name)

    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_backward_keeps_no_probabilities():
    sizes = {"b": 2, "g": 4, "s": 64, "t": 64, "d": 8, "e": 8}
    made, model = draw(
        3,
        np.float32,
        scale="none",
        masks=[],
        between="",
        turn="last",
        flat=False,
        shared="",
        open_batch=False,
        **sizes,
    )
    plain = residuals(differentiated(made, model, fuse_attention=False).model)
    fused = residuals(differentiated(made, model).model)

    probabilities, rows = 2 * 4 * 64 * 64, 2 * 4 * 64
    assert plain.bytes - fused.bytes == 4 * (probabilities - rows)


def standard(shapes, mask=None, opset=23, **options):
    """A model of the standard operator, and inputs for it."""
    rng = np.random.default_rng(0)
    feeds = {n: rng.standard_normal(shape) for n, shape in zip("qkv", shapes, strict=True)}
    if mask is not None:
        feeds["m"] = mask
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feeds.items()
    ]
    nodes = [
        helper.make_node("Attention", list(feeds), ["y"], "attention", **options),
        helper.make_node("Sin", ["y"], ["z"]),
        helper.make_node("ReduceSum", ["z"], ["loss"], keepdims=0),
    ]
    out = helper.make_tensor_value_info("loss", 11, [])
    graph = helper.make_graph(nodes, "standard", inputs, [out])
    version = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=version, ir_version=11), feeds


HALF = np.random.default_rng(1).random((2, 1, 3, 5)) < 0.5
STANDARD = {
    "heads": ([(2, 4, 3, 6), (2, 4, 5, 6), (2, 4, 5, 2)], {}),
    "groups": ([(2, 4, 3, 6), (2, 2, 5, 6), (2, 2, 5, 2)], {"scale": 0.3}),
    "causal": ([(2, 4, 3, 6), (2, 2, 5, 6), (2, 2, 5, 2)], {"is_causal": 1}),
    "flat": ([(2, 3, 24), (2, 5, 12), (2, 5, 4)], {"q_num_heads": 4, "kv_num_heads": 2}),
    "mask": ([(2, 4, 3, 6), (2, 4, 5, 6), (2, 4, 5, 2)], {"mask": HALF}),
    "nothing seen": ([(2, 4, 3, 6), (2, 4, 5, 6), (2, 4, 5, 2)], {"mask": HALF & False}),
    "added": ([(2, 4, 3, 6), (2, 4, 5, 6), (2, 4, 5, 2)], {"mask": HALF * 2.0}),
}


@pytest.mark.parametrize("name", STANDARD)
def test_the_standard_operator_has_the_same_gradients(name):
    shapes, options = STANDARD[name]
    model, feeds = standard(shapes, **options)
    wanted = [n for n, a in feeds.items() if a.dtype != bool]
    plain, fused = (
        gt.grad(gt.load(model), input_grad=wanted, fuse_attention=fuse) for fuse in (False, True)
    )

    assert (count(plain), count(fused)) == (0, 1)
    assert count(fused, "Attention") == 0
    same(gt.run(fused, feeds).gradients, gt.run(plain, feeds).gradients, 1e-6)


@pytest.mark.parametrize("options", [{"softcap": 2.0}, {"mask": HALF[..., :4]}])
def test_the_standard_operator_stays_where_it_does_more(options):
    model, feeds = standard([(2, 4, 3, 6), (2, 4, 5, 6), (2, 4, 5, 2)], **options)
    assert count(gt.grad(gt.load(model), input_grad=["q"]), "Attention") == 1
    assert feeds.keys() >= {"q", "k", "v"}


@pytest.mark.parametrize("wanted", ["heads", "wrt", "loss"])
def test_attention_whose_result_is_asked_for_by_name_gives_its_gradients(wanted):
    """Its last node is held by who asks: it stays, and no gradient is lost."""
    text = """<ir_version: 10, opset_import: ["" : 23]>
    g (double[1, 2, 3, 4] q, double[1, 2, 5, 4] k, double[1, 2, 5, 4] v)
        => (double[1, 2, 3, 4] y) { y = Attention (q, k, v) }"""
    random = np.random.default_rng(0)
    feeds = {n: random.normal(size=(1, 2, s, 4)) for n, s in (("q", 3), ("k", 5), ("v", 5))}
    options = {
        "heads": {"head_grads": True, "wrt": ["q", "k", "v"]},
        "wrt": {"loss": "sum:y", "wrt": ["q", "y"]},
        "loss": {"loss": "mean:y", "wrt": ["q", "k", "v"]},
    }[wanted]
    if wanted == "heads":
        feeds["y_grad"] = random.normal(size=(1, 2, 3, 4))
    found, plain = (
        gt.run(
            gt.grad(gt.load(onnx.parser.parse_model(text)), fuse_attention=fuse, **options), feeds
        ).gradients
        for fuse in (True, False)
    )

    assert found.keys() == plain.keys()
    for name, gradient in plain.items():
        assert np.any(gradient)
        np.testing.assert_allclose(found[name], gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", sampled(range(200, 216)))
def test_what_is_written_is_the_same_program_when_it_is_read_again(seed, tmp_path):
    """Gradients of however many masks are part of the call that bodies stand for."""
    made, model = draw(seed, np.float32)
    training = differentiated(made, model)
    gt.save(training.model, tmp_path / "out.onnx")
    again = gt.load(tmp_path / "out.onnx")

    for op in ("FusedAttention", "FusedAttentionGrad"):
        assert sum(node.op_type == op for node in again.graph) == count(training, op), made.drawn
