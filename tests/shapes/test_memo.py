import numpy as np
import onnx_ir as ir
from graphs import parse

from gradtool.emit.builder import Builder
from gradtool.shapes.memo import Memo

MODEL = """g (float[n, 4] x, float[n, 4] z, float[n, 3] w, float[m, 4] v, int64[2] s) => (y) {
    y = Add (x, z)
}"""


def built():
    model = parse(MODEL)
    return Builder(model), {value.name: value for value in model.graph.inputs}


def inferred(op):
    """How many nodes were inferred, each kind once."""
    return len(op._memo._found)


def test_like_nodes_are_inferred_once():
    op, v = built()
    first = op.Tanh(v["x"])
    second = op.Tanh(v["z"])

    assert inferred(op) == 1
    assert first.shape == second.shape == v["x"].shape
    assert op.Tanh(v["z"]).shape is second.shape
    assert second.shape.frozen
    assert second.dtype == ir.DataType.FLOAT


def test_another_shape_symbol_attribute_or_operator_is_another_node():
    op, v = built()
    shapes = [
        op.Softmax(v["x"], axis=0).shape,
        op.Softmax(v["x"], axis=1).shape,
        op.Softmax(v["w"], axis=1).shape,
        op.Softmax(v["v"], axis=1).shape,
        op.Tanh(v["v"]).shape,
    ]

    assert inferred(op) == 5
    assert [str(s) for s in shapes] == ["[n,4]", "[n,4]", "[n,3]", "[m,4]", "[m,4]"]


def test_the_sizes_that_are_asked_for_are_part_of_the_likeness():
    op, v = built()
    flat, tall = op.Reshape(v["x"], [-1]), op.Reshape(v["x"], [-1, 2])

    assert [str(flat.shape), str(tall.shape)] == ["[4*n]", "[2*n,2]"]
    assert str(op.Reshape(v["z"], [-1, 2]).shape) == "[2*n,2]"
    assert inferred(op) == 2


def test_small_floats_are_data_that_a_shape_may_depend_on():
    op, _ = built()
    x = op.constant(np.zeros((1, 1, 2, 2), np.float32))
    shapes = [
        op.Resize(x, None, np.array([1, 1, scale, scale], np.float32)).shape.numpy()
        for scale in (2, 3, 2)
    ]

    assert shapes == [(1, 1, 4, 4), (1, 1, 6, 6), (1, 1, 4, 4)]


def test_sizes_that_depend_on_data_are_symbols_of_their_own():
    op, v = built()
    first, second = op.Expand(v["x"], op.Abs(v["s"])), op.Expand(v["x"], op.Abs(v["s"]))

    assert inferred(op) == 0
    assert first.shape[0] != second.shape[0]


def test_nodes_of_sizes_of_other_names_are_inferred_once():
    op, v = built()
    asked = []
    rule = op._infer
    op._infer = lambda node: (asked.append(node), rule(node))
    shapes = [op.Concat(value, v["x"], axis=0).shape for value in (v["v"], v["x"], v["v"])]
    flat = [op.Reshape(v[name], [-1]).shape for name in "xv"]

    assert [str(s) for s in shapes] == ["[m + n,4]", "[2*n,4]", "[m + n,4]"]
    assert [str(s) for s in flat] == ["[4*n]", "[4*m]"]
    assert len(asked) == 3


def test_integers_are_inferred_each_time():
    op, v = built()

    assert str(op.Expand(v["x"], op.Shape(v["z"])).shape) == "[n,4]"
    assert str(op.Expand(op.constant(np.float32([0])), op.Shape(v["w"])).shape) == "[n,3]"


def test_a_node_with_a_subgraph_has_no_likeness():
    op, v = built()
    element = op.formal("element", [], ir.DataType.FLOAT)
    with op.body([element]) as body:
        body.outputs.append(op.Tanh(element))
    node = ir.Node("", "SequenceMap", [v["x"]], [ir.AttrGraph("body", body)])

    assert Memo(op.context).key(node) is None
