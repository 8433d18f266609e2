from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from random_scopes import Drawn, blank
from shared import SMALL

import gradtool as gt
from gradtool.io import lift_constants, safetensors
from gradtool.kit.merge import merge_kit
from gradtool.kit.write import write_kit


def feeds(seed):
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((4, 3)).astype(np.float32)}


def stock(path, x, flag):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given = {"x": x, "flag": np.array(flag)}
    return session.run(None, {v.name: given[v.name] for v in session.get_inputs()})[0]


def trained_where_it_lies(seed, folder):
    """Train a drawn model, write it, and compare what stock onnxruntime makes of the file."""
    path = Drawn(seed).write(folder)
    before, x = onnx.load(path, load_external_data=False), feeds(seed)["x"]
    labels = np.zeros_like(x)
    names = [each.name for each in lift_constants.stored_tensors(before).values()]
    assert len(names) == len(set(names))

    graph = gt.grad(gt.load(path), loss="mse:y", optimizer="sgd")
    out = folder / "out.onnx"
    with gt.Session(graph) as session:
        for flag in (True, False):
            session.step({"x": x, "flag": np.array(flag), "labels": labels, "lr": 0.05})
        session.save(out)
        for flag in (True, False):
            given = {"x": x, "flag": np.array(flag), "labels": labels}
            expected = session.evaluate(given).outputs["y"]
            np.testing.assert_allclose(stock(out, x, flag), expected, rtol=1e-4, atol=1e-5)
    after = onnx.load(out, load_external_data=False)
    assert blank(after) == blank(before)
    assert graph.updates


def adapted_where_it_lies(seed, folder):
    """Train adapters of a drawn model: merged into its file, by a kit too, and beside it."""
    path = Drawn(seed).write(folder)
    x = feeds(seed)["x"]
    batch = {"x": x, "flag": np.array(True), "labels": np.zeros_like(x)}
    if not any(n.op_type in ("MatMul", "Gemm") for n in gt.load(path).graph.all_nodes()):
        return  # of what was drawn nothing can be adapted
    graph = gt.grad(gt.load(path), loss="mse:y", optimizer="sgd", lora=1)
    out, beside, merged = (folder / f"{each}.onnx" for each in ("out", "beside", "merged"))
    with gt.Session(graph) as session:
        for _ in range(2):
            session.step({**batch, "lr": 0.05})
        session.save(out)
        session.save_adapter(beside)
        expected = session.evaluate(batch).outputs["y"]
        state = session.values()
    np.testing.assert_allclose(stock(out, x, flag=True), expected, rtol=1e-4, atol=1e-5)
    first = stock(path, x, flag=True)
    np.testing.assert_allclose(stock(beside, x, flag=True), first, rtol=1e-4, atol=1e-5)
    before, after = (onnx.load(each, load_external_data=False) for each in (path, out))
    assert blank(after) == blank(before)

    write_kit(graph, folder / "kit")
    safetensors.save(folder / "state.safetensors", state)
    merge_kit(folder / "kit", folder / "state.safetensors", merged)
    assert onnx.load(merged).SerializeToString() == onnx.load(out).SerializeToString()


@pytest.mark.parametrize("seed", range(20, 23))
def test_adapters_are_merged_where_weights_lie(seed, tmp_path):
    adapted_where_it_lies(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(23, 100))
def test_more_adapters_are_merged_where_weights_lie(seed, tmp_path):
    adapted_where_it_lies(seed, tmp_path)


@pytest.mark.parametrize("seed", range(6))
def test_weights_are_trained_and_written_where_they_lie(seed, tmp_path):
    trained_where_it_lies(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 200))
def test_more_weights_are_trained_and_written_where_they_lie(seed, tmp_path):
    trained_where_it_lies(seed, tmp_path)


def as_constants(model, seed=0):
    """A model whose initializers are Constant nodes, in one of the forms that each may have."""
    rng, copy = np.random.default_rng(seed), onnx.ModelProto()
    copy.CopyFrom(model)
    graph, given = copy.graph, {value.name for value in copy.graph.input}
    made = []
    for tensor in list(graph.initializer):
        if tensor.name in given:
            continue
        held = onnx.numpy_helper.to_array(tensor)
        forms = [{"value": tensor}]
        if held.ndim < 2 and held.dtype in (np.float32, np.int64):
            key = "value_float" if held.dtype == np.float32 else "value_int"
            forms.append({key + "s" * held.ndim: held.tolist()})
        if held.ndim and held.dtype == np.float32:
            places = np.flatnonzero(held != 0)
            values = onnx.numpy_helper.from_array(held.ravel()[places], tensor.name)
            indices = onnx.numpy_helper.from_array(places)
            sparse = onnx.helper.make_sparse_tensor(values, indices, held.shape)
            forms.append({"sparse_value": sparse})
        form = forms[rng.integers(len(forms))]
        made.append(onnx.helper.make_node("Constant", [], [tensor.name], **form))
        graph.initializer.remove(tensor)
    nodes = [*made, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    return copy


def same_as_constants(path, folder, **how):
    """A training graph of a file, and that of the file whose initializers are Constant nodes."""
    model = onnx.load(path)
    rewritten = folder / "constants.onnx"
    rewritten.write_bytes(as_constants(model).SerializeToString())
    found = [gt.grad(gt.load(each), **how) for each in (path, rewritten)]
    assert dict(found[0].gradients) == dict(found[1].gradients)
    assert found[0].loss_said == found[1].loss_said
    kinds = [sorted(node.op_type for node in each.model.graph) for each in found]
    assert kinds[0] == kinds[1]
    return found


@pytest.mark.parametrize("name", ["cnn", "transformer"])
def test_a_file_of_constant_nodes_is_that_of_initializers(name, tmp_path):
    path = Path(__file__).parents[2] / "samples" / f"{name}.onnx"
    plain, other = same_as_constants(path, tmp_path)
    given = dict(np.load(path.with_suffix(".npz")))
    batch = {v.name: given[v.name][:4] for v in plain.model.graph.inputs if v.name in given}
    results = [gt.run(each, batch) for each in (plain, other)]
    assert results[0].outputs.keys() == results[1].outputs.keys()
    for key, array in results[0].outputs.items():
        np.testing.assert_array_equal(array, results[1].outputs[key])


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize("model", sorted(SMALL.glob("*/*.onnx")), ids=lambda path: path.parent.name)
def test_the_zoo_of_constant_nodes_is_that_of_initializers(model, tmp_path):
    same_as_constants(model, tmp_path)


def test_what_a_sparse_constant_may_not_hold_is_refused():
    for places, sizes, said in (
        ([0, 9], [3, 3], "lies outside"), ([1, 1], [3, 3], "rising order"),
        ([0, 1, 2], [3, 3], "are none of 2 values"), ([0, 1], [1 << 20, 1 << 20], "the limit is"),
    ):  # fmt: skip
        values = onnx.helper.make_tensor("w", 1, [2], [1.0, 2.0])
        indices = onnx.helper.make_tensor("", 7, [len(places)], places)
        sparse = onnx.helper.make_sparse_tensor(values, indices, sizes)
        model = Drawn(0, ("raw",), depth=0).model
        node = onnx.helper.make_node("Constant", [], ["unread"], sparse_value=sparse)
        model.graph.node.append(node)
        with pytest.raises(gt.GradtoolError, match=said):
            gt.load(model)


def test_a_lone_number_of_a_constant_is_trained_if_asked_for_and_else_not_mentioned():
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> '
        "g (float[n, 3] x) => (float[n, 3] y) "
        "{ k = Constant <value_float = 1.5> () y = Mul (x, k) }"
    )
    assert "scalar" not in str(gt.grad(gt.load(model), loss="mse:y").warnings)
    assert list(gt.grad(gt.load(model), loss="mse:y", wrt=["k"]).gradients) == ["k"]


def test_a_constant_that_a_body_returns_is_a_weight():
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> '
        "g (float[n, 3] x, bool c) => (float[n, 3] y) { "
        "w = If (c) <then_branch = a () => (float[3] w) "
        "{ w = Constant <value = float[3] {1, 2, 3}> () }, "
        "else_branch = b () => (float[3] w) { w = Constant <value = float[3] {4, 5, 6}> () }> "
        "y = Mul (x, w) }"
    )
    del model.graph.node[0].output[:]
    model.graph.node[0].output.append("chosen")
    model.graph.node[1].input[1] = "chosen"
    found = gt.grad(gt.load(model), loss="mse:y")
    assert list(found.gradients) == ["w", "w_1"]
    x = np.ones((2, 3), np.float32)
    given = {"x": x, "c": np.array(False), "labels": 0 * x}
    gradients = gt.run(found, given).gradients
    np.testing.assert_array_equal(gradients["w"], np.zeros(3, np.float32))
    np.testing.assert_allclose(gradients["w_1"], 2 * np.array([4, 5, 6]) / 3, rtol=1e-6)


@pytest.mark.parametrize(("producer", "expected"), [("pytorch", {"w"}), ("paddle", {"w", "c"})])
def test_constants_of_pytorch_are_literals(producer, expected):
    made = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 18]>
        g (float[2, 3] x) => (float[2, 3] y) <float[3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}>
        { c = Constant <value = float[3] {1, 2, 3}> ()  p = MatMul (x, w)  y = Mul (p, c) }"""
    )
    made.producer_name = producer

    assert set(gt.grad(gt.load(made), loss="mse:y").gradients) == expected
    assert set(gt.grad(gt.load(made), loss="mse:y", wrt=["c"]).gradients) == {"c"}


@pytest.mark.parametrize("held", ["Constant", "initializer"])
@pytest.mark.parametrize(
    ("name", "trained"),
    [("onnx::Mul_12", True), ("/net/rotary/Constant_1_output_0", False), ("scale", True)],
)
def test_literals_of_torchscript_stay_such_when_a_quantiser_writes_the_file(held, name, trained):
    make, tensor = onnx.helper.make_node, onnx.numpy_helper.from_array
    numbers = tensor(np.array([1, 2, 3], np.float32), name)
    is_node = held == "Constant"
    nodes = [make("Constant", [], [name], value=numbers)] if is_node else []
    nodes += [make("MatMul", ["x", "w"], ["p"]), make("Mul", ["p", name], ["y"])]
    weights = [tensor(np.eye(3, dtype=np.float32), "w"), *([] if is_node else [numbers])]
    x, y = (onnx.helper.make_tensor_value_info(n, 1, [2, 3]) for n in "xy")
    graph = onnx.helper.make_graph(nodes, "g", [x], [y], weights)
    made = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9,
        producer_name="onnx.quantize",
    )  # fmt: skip
    literal = not trained or (is_node and name.startswith("onnx::"))
    expected = {"w"} if literal else {"w", name}

    assert set(gt.grad(gt.load(made), loss="mse:y").gradients) == expected
