"""Files with weights of few bits: gradients, adapters beside them, what is refused."""

from __future__ import annotations

import logging

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from quantised import exactly

import gradtool as gt
from gradtool.errors import ModelError, NotDifferentiable, UsageError
from gradtool.graph.training_info import TrainingInfo

RNG = np.random.default_rng(0)
INPUTS, HIDDEN, OUTPUTS = 40, 64, 8
X = RNG.normal(size=(16, INPUTS)).astype(np.float32)
WEIGHTS = {"w1": (INPUTS, HIDDEN), "w2": (HIDDEN, OUTPUTS)}
TWO = """(float[n, 40] x) => (float[n, 8] y) {
    [up] h = MatMul (x, w1)
    [act] r = Relu (h)
    [down] y = MatMul (r, w2)
}"""


def parsed(text, opset=18, **held):
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["":{opset}, "com.microsoft":1]> g {text}'
    )
    model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in held.items())
    return model


@pytest.fixture(scope="module")
def quantised():
    """A function of opset, bits and attributes: two products as onnxruntime quantises them."""
    nbits = pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer")
    logging.disable(logging.WARNING)

    def make(opset=18, bits=4, **options):
        rng = np.random.default_rng(3)
        held = {k: rng.normal(size=s).astype(np.float32) / 4 for k, s in WEIGHTS.items()}
        config = nbits.DefaultWeightOnlyQuantConfig(
            block_size=16, is_symmetric=False, bits=bits, **options
        )
        made = nbits.MatMulNBitsQuantizer(parsed(TWO, opset, **held), algo_config=config)
        made.process()
        return made.model.model

    yield make
    logging.disable(logging.NOTSET)


def decoded(model, name):
    """The weight [columns, rows] of a product in float64."""
    held = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    node = next(n for n in model.graph.node if n.name.startswith(name))
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    codes, scale, zero = (held[n] for n in node.input[1:4])
    bits, rows, size = given["bits"], given["N"], given["block_size"]
    places = np.arange(0, 8, bits, dtype=np.uint8)
    codes, zero = (
        (a.reshape(rows, -1)[..., None] >> places & (2**bits - 1)).reshape(rows, -1).astype(float)
        for a in (codes, zero)
    )
    scale = scale.reshape(rows, -1)
    found = (codes - zero[:, : scale.shape[1]].repeat(size, 1)) * scale.repeat(size, 1)
    return found[:, : given["K"]].T


@pytest.mark.sample(3)
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("opset", [18, 21])
def test_gradients_are_those_of_decoded_weights_in_float64(quantised, opset, bits):
    model = quantised(opset, bits)
    first, second = decoded(model, "up"), decoded(model, "down")
    hidden = X @ first
    dx = (np.ones((16, 8)) @ second.T * (hidden > 0)) @ first.T
    y = np.maximum(hidden, 0) @ second

    graph = gt.grad(gt.load(model), loss="sum:y", input_grad=["x"], wrt=[])

    for how in ({"kernels": "numpy"}, {}, {"engine": "ort"}):
        found = gt.run(graph, {"x": X}, **how)
        for mine, expected in ((found.gradients["x"], dx), (found.outputs["y"], y)):
            assert np.abs(mine - expected).max() < 1e-5 * np.abs(expected).max()


def test_a_written_graph_has_standard_operators_alone_and_is_read_back(quantised, tmp_path):
    graph = gt.grad(gt.load(quantised(21)), loss="sum:y", input_grad=["x"], wrt=[])
    path, _ = gt.save(graph, tmp_path / "grad.onnx")
    written = onnx.load(path)

    assert {node.domain for node in written.graph.node} == {""}
    assert "DequantizeLinear" in {node.op_type for node in written.graph.node}
    read = [n.op_type for n in gt.load(path).graph]
    assert read.count("QuantizedMatMul") == 4


def test_the_decoded_weight_is_in_no_plan(quantised):
    graph = gt.grad(gt.load(quantised()), loss="sum:y", input_grad=["x"], wrt=[])
    found = gt.run(graph, {"x": X}, check_arena=True)
    whole = 4 * INPUTS * HIDDEN

    assert all(v.shape.numpy() != (HIDDEN, INPUTS) for n in graph.model.graph for v in n.outputs
               if v.shape.is_static())  # fmt: skip
    assert found.plan.peak < 40 * whole


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bits": 3}, "bits = 3"),
        ({"weight_prepacked": 1}, "weight_prepacked = 1"),
        ({"K": 48}, "weight 'w' of shape [3, 2, 8] in place of [3, 3, 8]"),
        ({"K": 30}, "32 columns for a matrix of 30"),
        ({"g_idx": np.int32([0, 2] * 16)}, "g_idx 'g' with numbers beyond 2"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(given, said):
    held = {"w": np.zeros((3, 2, 8), np.uint8), "s": np.ones((3, 2), np.float32)}
    groups = given.pop("g_idx", None) if "g_idx" in given else None
    held |= {} if groups is None else {"g": groups}
    attributes = {"N": 3, "K": 32, "bits": 4, "block_size": 16} | given
    asked = ", ".join(f"{k} = {v}" for k, v in attributes.items())
    model = parsed(
        f"""(float[2, 32] x) => (float[2, 3] y) {{
        [product] y = com.microsoft.MatMulNBits <{asked}> (x, w, s{", , g" if "g" in held else ""})
    }}""", **held,
    )  # fmt: skip

    with pytest.raises(ModelError, match="product") as error:
        gt.load(model)
    assert said in str(error.value)


def test_an_optimizer_without_a_parameter_is_told_of_adapters(quantised):
    with pytest.raises(UsageError, match=r"no parameter.*--lora RANK"):
        gt.grad(gt.load(quantised()), loss="mse:y", optimizer="sgd")


def test_scales_have_no_gradient(quantised):
    with pytest.raises(NotDifferentiable, match="frozen"):
        gt.grad(gt.load(quantised()), loss="sum:y", wrt=["w1_scales"])


def test_a_table_that_is_tied_to_the_last_product_is_looked_up_and_multiplied():
    ort = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(2)
    model = parsed(
        """(int64[n] i) => (float[n, 6] y) {
        flat = Reshape (w, sizes)
        e = com.microsoft.GatherBlockQuantized <block_size = 16, bits = 4> (flat, i, s)
        [head] y = com.microsoft.MatMulNBits <N = 6, K = 32, bits = 4, block_size = 16> (e, w, s)
    }""",
        w=rng.integers(0, 256, (6, 2, 8)).astype(np.uint8), sizes=np.int64([6, 16]),
        s=rng.uniform(0.1, 0.2, (6, 2)).astype(np.float32),
    )  # fmt: skip
    feeds = {"i": np.int64([3, 0, 5])}
    theirs = ort.InferenceSession(model.SerializeToString()).run(None, feeds)[0]

    training = gt.grad(gt.load(model), loss="sum:y", lora=2)

    assert [each.weight for each in TrainingInfo.of(training.model).lora] == ["w"]
    found = gt.run(training, feeds)
    np.testing.assert_allclose(found.outputs["y"], theirs, rtol=1e-5)


# ------------------------------------------------------------------------------------ adapters


@pytest.mark.parametrize("opset", [18, 21])
def test_adapters_beside_few_bits_run_in_stock_onnxruntime(quantised, tmp_path, opset):
    onnx.save(quantised(opset), tmp_path / "net.onnx")
    data = {"x": X, "labels": RNG.normal(size=(16, 8)).astype(np.float32)}
    options = {"lora": 2, "batch": 8, "steps": 6, "lr": 0.1, "optimizer": "sgd", "loss": "mse:y"}
    with gt.Trainer(tmp_path / "net.onnx", **options) as trainer:
        trainer.fit(data)
        trained = trainer.session.evaluate(data).outputs["y"]
        (model, _), (adapter, _) = trainer.save_adapter(tmp_path / "net.lora.onnx")
        with pytest.raises(UsageError, match="few bits"):
            trainer.save(tmp_path / "merged.onnx")

    before = exactly(str(tmp_path / "net.onnx"), {"x": X})
    np.testing.assert_array_equal(exactly(str(model), {"x": X}), before)
    np.testing.assert_allclose(
        exactly(str(model), {"x": X}, adapter), trained, rtol=1e-4, atol=1e-5
    )
    assert np.abs(trained - before).max() > 1e-2
    assert not (tmp_path / "merged.onnx").exists()


@pytest.mark.parametrize("target", ["w1_Q4", "up_Q4", "up*"])
def test_a_target_is_the_name_of_the_weight_or_of_the_node(quantised, target):
    training = gt.grad(gt.load(quantised()), loss="mse:y", lora=2, lora_target=[target])

    assert [each.weight for each in TrainingInfo.of(training.model).lora] == ["w1_Q4"]


def test_frozen_weights_are_said_unless_adapters_stand_beside_them(quantised):
    plain = gt.grad(gt.load(quantised()), loss="sum:y", input_grad=["x"], wrt=[])
    adapted = gt.grad(gt.load(quantised()), loss="mse:y", lora=2)

    assert [w for w in plain.warnings if "2 weights of few bits" in w and "--lora" in w]
    assert not [w for w in adapted.warnings if "few bits" in w]


# ------------------------------------------------------------------ dequantised by block


def by_block(kind, *, turned, zero=True, size=16, bias=False):
    """A product with a matrix [40, 6] of that type, decoded by block; and its numbers."""
    rng = np.random.default_rng(5)
    dtype = np.dtype(getattr(ml_dtypes, kind, kind))
    info = ml_dtypes.iinfo(dtype)
    blocks = -(-INPUTS // size)
    q, z = (
        rng.integers(info.min, info.max + 1, s).astype(dtype) for s in ((INPUTS, 6), (blocks, 6))
    )
    s = rng.uniform(0.05, 0.1, (blocks, 6)).astype(np.float32)
    offset = z.astype(float).repeat(size, 0)[:INPUTS] if zero else 0
    exact = (q.astype(float) - offset) * s.repeat(size, 0)[:INPUTS]
    held = {"q": q, "s": s, **({"z": z} if zero else {})}
    if turned:
        held = {name: np.ascontiguousarray(value.T) for name, value in held.items()}
    product = "[product] y = MatMul (x, w)"
    if turned:
        product = "t = Transpose <perm = [1, 0]> (w) [product] y = MatMul (x, t)"
    if bias:
        held["b"] = np.arange(6, dtype=np.float32)
        product = f"y = Gemm <transB = {int(turned)}, beta = 2.0> (x, w, b)"
    model = parsed(
        f"""(float[n, 40] x) => (float[n, 6] y) {{
        w = DequantizeLinear <axis = {int(turned)}, block_size = {size}>
            (q, s{", z" if zero else ""}) {product}
    }}""", 21, **held,
    )  # fmt: skip
    return model, exact


@pytest.mark.sample(4)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("kind", ["int4", "uint4", "int8", "uint8"])
@pytest.mark.parametrize("more", [{}, {"zero": False, "size": 40}, {"bias": True, "size": 12}])
def test_a_matrix_decoded_by_block_is_held_by_no_plan(kind, turned, more):
    pytest.importorskip("onnxruntime")
    model, exact = by_block(kind, turned=turned, **more)
    graph = gt.grad(gt.load(model), loss="sum:y", input_grad=["x"], wrt=[])

    assert "DequantizeLinear" not in {n.op_type for n in graph.model.graph}
    y = X @ exact + (2.0 * np.arange(6) if more.get("bias") else 0)
    for how in ({"kernels": "numpy"}, {}, {"engine": "ort"}):
        found = gt.run(graph, {"x": X}, **how)
        np.testing.assert_allclose(found.outputs["y"], y, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found.gradients["x"], [exact.sum(1)] * 16, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", ["q", "product", "prod*"])
def test_a_target_is_the_name_of_codes_or_of_the_product_behind_them(target):
    model, _ = by_block("uint4", turned=False)
    training = gt.grad(gt.load(model), loss="mse:y", lora=2, lora_target=[target])

    assert [each.weight for each in TrainingInfo.of(training.model).lora] == ["q"]
    assert training.model.graph.initializers["q.lora_A"].shape.numpy() == (INPUTS, 2)


def test_a_scale_that_is_asked_for_has_its_gradient():
    model, _ = by_block("int4", turned=False)
    graph = gt.grad(gt.load(model), loss="sum:y", wrt=["s"])

    assert gt.run(graph, {"x": X}).gradients["s"].shape == (3, 6)


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["int4", "uint8"])
@pytest.mark.parametrize("turned", [False, True])
def test_adapters_beside_a_matrix_decoded_by_block_run_in_onnxruntime(kind, turned, tmp_path):
    pytest.importorskip("onnxruntime")
    model, _ = by_block(kind, turned=turned)
    onnx.save(model, tmp_path / "net.onnx")
    data = {"x": X, "labels": RNG.normal(size=(16, 6)).astype(np.float32)}
    options = {"lora": 2, "batch": 8, "steps": 6, "lr": 0.1, "optimizer": "sgd", "loss": "mse:y"}
    with gt.Trainer(tmp_path / "net.onnx", **options) as trainer:
        trainer.fit(data)
        trained = trainer.session.evaluate(data).outputs["y"]
        (path, _), (adapter, _) = trainer.save_adapter(tmp_path / "net.lora.onnx")

    before = exactly(str(tmp_path / "net.onnx"), {"x": X})
    np.testing.assert_array_equal(exactly(str(path), {"x": X}), before)
    np.testing.assert_allclose(exactly(str(path), {"x": X}, adapter), trained, rtol=1e-4, atol=1e-4)
    assert np.abs(trained - before).max() > 1e-2
