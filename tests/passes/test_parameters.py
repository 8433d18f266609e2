from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from graphs import parse

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.passes.provenance import FOLDED, KIND


def one(shape, body):
    kind = f"float[{shape}]" if shape else "float"
    return f"g (float[2, 3, 4] x, float[4, 3] w, float[1, 3, 1] k, {kind} v) => (y) {{ {body} }}"


@pytest.mark.parametrize(
    ("shape", "body", "trained"),
    [
        ("1", "h = MatMul (x, w) y = Add (h, v)", True),
        ("1", "h = MatMul (x, w) y = Add (v, h)", True),
        ("1", "h = MatMul (x, w) i = Identity (h) y = Add (i, v)", True),
        ("1", "y = Conv (x, k, v)", True),
        ("1", "y = PRelu (x, v)", True),
        ("1, 1, 1", "h = LayerNormalization (x, u) y = Mul (h, v)", True),
        ("1, 1, 1", "h = LayerNormalization (x, u) m = Mul (h, u) y = Add (m, v)", True),
        ("1, 1, 1", "h = Conv (x, k) y = Conv (h, v)", True),
        ("1", "h = MatMul (x, w) y = Mul (h, v)", False),
        ("1", "y = Mul (x, v)", False),
        ("1", "y = Pow (x, v)", False),
        ("1", "y = Add (x, v)", False),
        ("1", "h = MatMul (x, w) a = Add (h, h) y = Add (a, v)", False),
        ("", "h = MatMul (x, w) y = Add (h, v)", False),
        ("2, 3, 4", "y = Mul (x, v)", True),
    ],
)
def test_one_element_is_a_parameter_where_a_layer_has_one(shape, body, trained):
    text = one(shape, body).replace("float[4, 3] w", "float[4, 3] w, float[4] u")
    training = gt.grad(parse(text, "w k v u"), loss="sum:y", input_grad=["x"])

    assert ("v" in training.gradients) is trained
    assert any("scalar initializers are not trained; --wrt NAME trains them: v" in w
               for w in training.warnings) is not trained  # fmt: skip


def test_what_is_asked_for_is_trained():
    training = gt.grad(parse(one("1", "y = Mul (x, v)"), "w k v"), loss="sum:y", wrt=["v"])

    assert list(training.gradients) == ["v"]


def test_both_kinds_are_named():
    text = """g (float[2, 4] x, float[4, 3] w, float[1] bias, float[1] scale) => (y) {
        h = MatMul (x, w) b = Add (h, bias) y = Mul (b, scale)
    }"""
    training = gt.grad(parse(text, "w bias scale"), loss="sum:y")

    (said,) = training.warnings
    left, _, kept = said.partition("; trained")
    assert left.endswith(": scale")
    assert kept.endswith(": bias")


def marked(key, text, shape="1"):
    model = parse(one(shape, "h = MatMul (x, w) y = Mul (h, v)"), "w v")
    model.graph.initializers["v"].metadata_props[key] = text
    return gt.grad(model, loss="sum:y")


@pytest.mark.parametrize("shape", ["", "1", "3"])
@pytest.mark.parametrize(
    ("kind", "trained"), [("PARAMETER", True), ("BUFFER", False), ("CONSTANT_TENSOR", False)]
)
def test_what_the_exporter_says_decides(shape, kind, trained):
    training = marked(KIND, kind, shape)

    assert ("v" in training.gradients) is trained
    assert bool(training.warnings) is not trained


@pytest.mark.parametrize(
    ("origins", "trained"),
    [
        ("['val_1', 'getitem', 'h']", False),
        ("['masked_fill', 'ones', 'triu', 'unsqueeze_4', 'val_18', 'zeros_like']", False),
        ("['linear', 'ones_like', 'scalar_tensor_default', 'val_12']", False),
        ("['mul_tensor_3', '_to_copy', 'arange_1']", False),
        ("['layer.weight', 'val_1']", True),
        ("['cls_token', 'expand', 'val_1']", True),
        ("['scale', 'mul_1']", True),
        ("['val', 'mul']", True),
        ("['position']", True),
        ("not a list", True),
    ],
)
def test_what_is_folded_from_temporary_values_alone_is_constant(origins, trained):
    assert ("v" in marked(FOLDED, origins, "3").gradients) is trained


def masked(dtype, least, shape, place):
    """A model that adds a tensor of `shape` to its input, of zeros but for one number."""
    held = np.zeros(shape, np.float32)
    held.reshape(-1)[place] = least
    code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "v"], ["y"])], "g",
        [onnx.helper.make_tensor_value_info("x", code, shape)],
        [onnx.helper.make_tensor_value_info("y", code, shape)],
        [onnx.numpy_helper.from_array(held.astype(dtype), "v")],
    )  # fmt: skip
    opsets = [onnx.helper.make_opsetid("", 18)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("least", [-np.inf, "least", -1e9, np.inf, -6e4, 3.0])
@pytest.mark.parametrize("shape", [(4, 4), (1, 2, 3, 3), (16,)])
def test_what_begins_like_a_mask_is_not_trained(dtype, least, shape):
    number = float(ml_dtypes.finfo(dtype).min) if least == "least" else least
    with np.errstate(over="ignore"):
        held, model = float(np.array(number).astype(dtype)), masked(dtype, number, shape, 1)
    is_mask = len(shape) > 1 and held <= max(-1e9, float(ml_dtypes.finfo(dtype).min))
    if is_mask:
        training = gt.grad(gt.load(model), loss="sum:y", input_grad=["x"])
        assert "v" not in training.gradients
        assert training.warnings[0] == "masks are not trained: v"
        with pytest.raises(UsageError, match="--wrt v: 'v' is a mask: it decides what"):
            gt.grad(gt.load(model), loss="sum:y", wrt=["v"])
    else:
        assert list(gt.grad(gt.load(model), loss="sum:y").gradients) == ["v"]


def kinds_of_rows(rng):
    """Tables and masks of 6 rows by name, and whether each is a mask."""
    table = rng.standard_normal((6, 6)).astype(np.float32)
    row, rows, column = table.copy(), table.copy(), table.copy()
    row[2], rows[[0, 3]], column[:, 1] = -np.inf, -np.inf, -1e4
    causal = np.triu(np.full((6, 6), -np.inf, np.float32), 1)
    distance = np.arange(6.0, dtype=np.float32)
    slopes = causal + np.minimum(distance[None] - distance[:, None], 0)
    padded = causal.copy()
    padded[0] = -np.inf
    yield from (("row", row, False), ("rows", rows, False), ("column", column, False))
    yield from (("causal", causal, True), ("slopes", slopes, True), ("padded", padded, True))
    long = rng.standard_normal((3, 5000)).astype(np.float32)
    long[0] = -np.inf
    yield "long", long, False


@pytest.mark.parametrize(
    ("held", "is_mask"),
    [(held, is_mask) for _, held, is_mask in kinds_of_rows(np.random.default_rng(0))],
    ids=[name for name, *_ in kinds_of_rows(np.random.default_rng(0))],
)
def test_a_table_with_a_row_of_infinities_is_no_mask(held, is_mask):
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "v"], ["y"])], "g",
        [value("x", 1, held.shape)], [value("y", 1, held.shape)],
        [onnx.numpy_helper.from_array(held, "v")],
    )  # fmt: skip
    opsets = [onnx.helper.make_opsetid("", 18)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)
    found = gt.grad(gt.load(model), loss="sum:y", input_grad=["x"])

    assert ("v" in found.gradients) is not is_mask


def test_what_a_layer_multiplies_by_is_no_mask():
    held = np.eye(3, dtype=np.float32)
    held[0, 1] = -1e12
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "v"], ["y"])], "g",
        [value("x", 1, ["n", 3])], [value("y", 1, ["n", 3])],
        [onnx.numpy_helper.from_array(held, "v")],
    )  # fmt: skip
    opsets = [onnx.helper.make_opsetid("", 18)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)

    assert list(gt.grad(gt.load(model), loss="mse:y").gradients) == ["v"]
