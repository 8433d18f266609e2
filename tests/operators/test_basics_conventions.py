"""Gradients at kinks and singular points, exactly; finite differences say nothing there."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from cases import Case
from checkers import build, evaluate

from gradtool.emit.builder import Builder
from gradtool.ops.composites.calls import inline
from gradtool.ops.driver import differentiate

inf, nan = np.inf, np.nan


def gradients(op, *inputs, dy=None, dtype=np.float64, bodies=False, opset=22, **attributes):
    """The gradient of each float input, with dy = 1 unless given."""
    arrays = [None if i is None else np.asarray(i) for i in inputs]
    arrays = [a.astype(dtype) if a is not None and a.dtype.kind == "f" else a for a in arrays]
    model, _ = build(Case(op, tuple(arrays), attributes, opset=opset))
    builder = Builder(model)
    with np.errstate(all="ignore"):
        y = evaluate(model, {})["y0"]
        seed = builder.constant(np.ones_like(y) if dy is None else np.asarray(dy, dtype))
        node = model.graph.node("node")
        wrt = [v for v in node.inputs if v is not None and v.dtype.is_floating_point()]
        made = differentiate(builder, {model.graph.outputs[0]: seed}, wrt)
        found = [made.gradients[v] for v in wrt]
        if bodies:
            names = [g.name for g in found]
            model.graph.outputs.extend(g for g in found if g.producer() is not None)
            inline(model)
            return _in_onnxruntime(model, names)
        values = evaluate(model, {})
    return [values[g.name] for g in found]


def _in_onnxruntime(model, names):
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    proto = ir.to_proto(model).SerializeToString()
    session = ort.InferenceSession(proto, options, providers=["CPUExecutionProvider"])
    held = {n: v.const_value.numpy() for n, v in model.graph.initializers.items()}
    wanted = [n for n in names if n not in held]
    run = dict(zip(wanted, session.run(wanted, {}), strict=True))
    return [run[n] if n in run else held[n] for n in names]


SELU_SCALE = 1.67326319217681884765625 * 1.05070102214813232421875
POINTS = [
    ("Relu", [-1, 0, 1, nan], {}, [0, 0, 1, 1]),
    ("ThresholdedRelu", [0.5, 1, 1.5], {}, [0, 0, 1]),
    ("Shrink", [-0.5, 0.5, 0.6], {}, [0, 0, 1]),
    ("LeakyRelu", [-1, 0, 1], {"alpha": 0.25}, [0.25, 0.25, 1]),
    ("Elu", [0, 1], {"alpha": 2.0}, [2, 1]),
    ("Selu", [0.0], {}, [SELU_SCALE]),
    ("Celu", [0, 1], {"alpha": 2.0}, [1, 1]),
    ("HardSigmoid", [-2, 0, 2], {"alpha": 0.25, "beta": 0.5}, [0, 0.25, 0]),
    ("HardSwish", [-3, 3], {}, [0, 1]),
    ("Softsign", [0], {}, [1]),
    ("Abs", [-2, 0, 2], {}, [-1, 0, 1]),
    ("Sqrt", [0], {}, [inf]),
    ("Reciprocal", [0], {}, [-inf]),
    ("Log", [0, -1], {}, [inf, -1]),
    ("Acos", [1], {}, [-inf]),
    ("Atanh", [1], {}, [inf]),
    ("Softplus", [1000, -1000], {}, [1, 0]),
    ("Sigmoid", [1000, -1000], {}, [0, 0]),
]


@pytest.mark.parametrize("bodies", [False, True], ids=["kernels", "bodies"])
@pytest.mark.parametrize(("op", "x", "attributes", "dx"), POINTS, ids=str)
def test_elementwise_gradients_at_their_kinks(op, x, attributes, dx, bodies):
    dtype = np.float32 if bodies else np.float64
    (found,) = gradients(op, np.asarray(x, float), dtype=dtype, bodies=bodies, **attributes)

    np.testing.assert_array_equal(found, np.asarray(dx, dtype))


@pytest.mark.parametrize("bodies", [False, True], ids=["kernels", "bodies"])
@pytest.mark.parametrize(
    ("x", "e", "dx", "de"),
    [
        (0.0, 0.0, 0, 0),
        (0.0, 0.5, inf, 0),
        (0.0, -1.0, -inf, -inf),
        (0.0, 2.0, 0, 0),
        (-2.0, 2.0, -4, nan),
        (nan, 0.0, 0, nan),
    ],
)
def test_powers_of_zero_and_of_negatives(x, e, dx, de, bodies):
    found = gradients("Pow", np.array([x, x]), np.array([e, e]), dtype=np.float32, bodies=bodies)

    np.testing.assert_array_equal(found, [[dx, dx], [de, de]])


def test_where_the_exponent_is_a_scalar_the_power_is_as_elsewhere():
    for e in (-1.0, 0.0, 0.5, 1.0, 2.0, 3.0):
        x = np.array([0.0, 1.0, 2.0])
        (one, _) = gradients("Pow", x, np.array(e))
        (each, _) = gradients("Pow", x, np.full(3, e))

        np.testing.assert_array_equal(one, each)


@pytest.mark.parametrize("op", ["Max", "Min"])
@pytest.mark.parametrize("bodies", [False, True], ids=["kernels", "bodies"])
def test_equal_inputs_share_the_gradient_of_their_extreme(op, bodies):
    tied = np.array([1.0, nan])
    options = {"dtype": np.float32, "bodies": bodies}

    np.testing.assert_array_equal(
        gradients(op, tied, np.array([1.0, 1.0]), **options), [[0.5, 1], [0.5, 0]]
    )
    np.testing.assert_array_equal(
        gradients(op, tied, np.array([1.0, 1.0]), np.array([1.0, 2.0]), **options),
        np.asarray([[1 / 3, 1], [1 / 3, 0], [1 / 3, 0]], np.float32),
    )


@pytest.mark.parametrize("bodies", [False, True], ids=["kernels", "bodies"])
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_equal_elements_share_the_gradient_of_their_extreme(op, bodies):
    x = np.ones((2, 4))
    (found,) = gradients(op, x, np.array([1]), dtype=np.float32, bodies=bodies)

    np.testing.assert_array_equal(found, [[0.25] * 4] * 2)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_an_extreme_that_is_not_a_number_has_no_gradient_that_is_one(op):
    (found,) = gradients(op, np.array([1.0, nan, 2.0]), np.array([0]))

    np.testing.assert_array_equal(found, [nan] * 3)


@pytest.mark.parametrize("bodies", [False, True], ids=["kernels", "bodies"])
def test_the_gradient_of_a_clipped_value_goes_to_the_bound_that_it_hit(bodies):
    options = {"dtype": np.float32, "bodies": bodies}
    x = np.array([-3.0, -1, 0, 1, 2])

    dx, dlow, dhigh = gradients("Clip", x, np.array(-1.0), np.array(1.0), **options)
    assert dx.tolist() == [0, 1, 1, 1, 0]
    assert (dlow, dhigh) == (1, 1)

    dx, dlow, dhigh = gradients("Clip", x, np.array(1.0), np.array(-1.0), **options)
    assert dx.tolist() == [0] * 5
    assert (dlow, dhigh) == (0, 5)


@pytest.mark.parametrize("op", ["ReduceL1", "ReduceL2"])
@pytest.mark.parametrize("bodies", [False, True], ids=["kernels", "bodies"])
def test_norms_of_nothing_have_no_slope(op, bodies):
    (found,) = gradients(op, np.zeros((2, 3)), np.array([1]), dtype=np.float32, bodies=bodies)

    np.testing.assert_array_equal(found, np.zeros((2, 3)))


@pytest.mark.parametrize("bodies", [False, True], ids=["kernels", "bodies"])
def test_products_with_zeros_are_differentiated_exactly(bodies):
    x = np.array([[0.0, 2, 3], [0, 0, 4], [1e-30, 1e-30, 1e20]])
    (found,) = gradients("ReduceProd", x, np.array([1]), dtype=np.float32, bodies=bodies)

    expected = [[6, 0, 0], [0, 0, 0], [1e-10, 1e-10, 0]]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("bodies", [False, True], ids=["kernels", "bodies"])
def test_softmax_of_extremes_has_finite_gradients(bodies):
    x = np.array([[1000.0, 0, -1000], [-inf, 0, 0], [-inf, -inf, 1]])
    dy = np.array([[1.0, 2, 3]] * 3)
    options = {"dy": dy, "dtype": np.float32, "bodies": bodies}

    (found,) = gradients("Softmax", x, **options)
    np.testing.assert_array_equal(found, [[0, 0, 0], [0, -0.25, 0.25], [0, 0, 0]])

    (found,) = gradients("LogSoftmax", x, **options)
    np.testing.assert_array_equal(found, [[-5, 2, 3], [1, -1, 0], [1, 2, -3]])


@pytest.mark.parametrize("bodies", [False, True], ids=["kernels", "bodies"])
@pytest.mark.parametrize("op", ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_a_loss_whose_labels_are_all_ignored_has_gradient_zero(op, reduction, bodies):
    x, labels = np.ones((2, 3)), np.array([1, 1])
    options = {"reduction": reduction, "ignore_index": 1, "dtype": np.float32, "bodies": bodies}
    (found,) = gradients(op, x, labels, **options)

    np.testing.assert_array_equal(found, np.zeros((2, 3)))


def test_a_choice_passes_no_gradient_to_the_other_branch_even_if_infinite():
    condition = np.array([True, False])
    a, b = gradients("Where", condition, np.ones(2), np.ones(2), dy=[inf, nan])

    np.testing.assert_array_equal([a, b], [[inf, 0], [0, nan]])


def test_no_gradient_flows_through_integers():
    model, _ = build(Case("Cast", (np.ones(3),), {"to": 7}))
    builder = Builder(model)
    y = model.graph.outputs[0]
    x = model.graph.node("node").inputs[0]
    back = builder.Cast(y, to=ir.DataType.DOUBLE)
    seed = builder.constant(np.ones(3))
    made = differentiate(builder, {back: seed}, [x])

    assert made.zeros == (x,)


def test_a_whole_mask_is_dropped_at_ratio_one():
    x = np.ones((4, 5))
    (found, _) = gradients("Dropout", x, np.array(1.0), np.array(True))

    np.testing.assert_array_equal(found, np.zeros((4, 5)))


def test_dropout_differentiates_the_mask_that_forward_drew():
    x, ratio, training = np.ones((40, 50)), np.array(0.25), np.array(True)
    (found, _) = gradients("Dropout", x, ratio, training, seed=5)

    assert set(np.unique(found)) == {0, 1 / 0.75}
    assert 0.7 < (found > 0).mean() < 0.8


EMPTY = [
    ("Gelu", [(0, 4)], {}),
    ("Softmax", [(0, 4)], {"axis": 0}),
    ("LogSoftmax", [(0, 4)], {"axis": 1}),
    ("Add", [(0, 4), (4,)], {}),
    ("Max", [(0, 4), (4,)], {}),
    ("MatMul", [(3, 0), (0, 4)], {}),
    ("MatMul", [(0, 2, 4), (4, 3)], {}),
    ("MatMul", [(0, 3, 4), (1, 4, 3)], {}),
    ("Gemm", [(3, 0), (0, 3), (3,)], {}),
    ("ReduceProd", [(0, 4)], {"keepdims": 0}),
    ("ReduceMean", [(0, 4)], {"keepdims": 0}),
    ("Einsum", [(0, 4), (4, 3)], {"equation": "ij,jk->ik"}),
]


@pytest.mark.parametrize(("op", "shapes", "attributes"), EMPTY, ids=str)
def test_empty_tensors_have_gradients_of_their_shape(op, shapes, attributes):
    found = gradients(op, *(np.zeros(s) for s in shapes), **attributes)

    assert [g.shape for g in found] == shapes
