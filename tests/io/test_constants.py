from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import gradtool as gt
from gradtool.errors import UsageError

RATE = 4000


def speech() -> onnx.ModelProto:
    """A switch decides which weights run, and a sampling rate how much of an axis is read."""
    rng = np.random.default_rng(0)

    def value(name, dtype, shape):
        return helper.make_tensor_value_info(name, dtype, shape)

    cached = helper.make_graph(
        [
            helper.make_node("Concat", ["past", "x"], ["both"], axis=1),
            helper.make_node("Trilu", ["both"], ["lower"], upper=0),
            helper.make_node("MatMul", ["lower", "w1"], ["t"]),
        ],
        "cached", [], [value("t", TensorProto.FLOAT, None)],
    )  # fmt: skip
    plain = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w2"], ["e"])],
        "plain", [], [value("e", TensorProto.FLOAT, None)],
    )  # fmt: skip
    nodes = [
        helper.make_node("If", ["use_cache"], ["h"], then_branch=cached, else_branch=plain),
        helper.make_node("Div", ["rate", "thousand"], ["k"]),
        helper.make_node("Reshape", ["k", "one"], ["k1"]),
        helper.make_node("Slice", ["h", "zero", "k1", "last"], ["s"]),
        helper.make_node("MatMul", ["s", "w3"], ["y"]),
    ]
    weights = {"w1": (8, 16), "w2": (8, 16), "w3": (4, 3)}
    held = {name: rng.standard_normal(shape).astype("f") for name, shape in weights.items()}
    held |= {
        name: np.array(numbers, np.int64)
        for name, numbers in {"thousand": 1000, "one": [1], "zero": [0], "last": [2]}.items()
    }
    graph = helper.make_graph(
        nodes, "g",
        [
            value("x", TensorProto.FLOAT, ["batch", "seq", 8]),
            value("past", TensorProto.FLOAT, ["batch", "past", 8]),
            value("use_cache", TensorProto.BOOL, [1]),
            value("rate", TensorProto.INT64, []),
        ],
        [value("y", TensorProto.FLOAT, ["batch", "seq", 3])],
        [onnx.numpy_helper.from_array(array, name) for name, array in held.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture
def path(tmp_path):
    onnx.save(speech(), tmp_path / "speech.onnx")
    return tmp_path / "speech.onnx"


VALUES = {"rate": RATE, "use_cache": False}
FLAGS = ["--set", f"rate={RATE}", "--set", "use_cache=false"]


def test_an_input_with_a_value_leaves_out_what_never_runs(path):
    model = gt.load(path, values=VALUES)

    assert [value.name for value in model.graph.inputs] == ["x"]
    assert sorted(n for n in model.graph.initializers if n.startswith("w")) == ["w2", "w3"]
    assert "If" not in {node.op_type for node in model.graph}
    assert [str(dim) for dim in model.graph.outputs[0].shape] == ["batch", "seq", "3"]


def test_gradients_are_those_of_the_model_that_is_given_the_value(path):
    """The other way to give it: as an array of a run."""
    x = np.random.default_rng(1).standard_normal((2, 5, 8)).astype("f")
    labels = np.zeros((2, 5), np.int64)
    fixed = gt.run(gt.grad(gt.load(path, values=VALUES)), {"x": x, "labels": labels})
    open_one = gt.load(path, dims={"batch": 2, "seq": 5, "past": 1})
    fed = {"x": x, "past": x[:, :1], "use_cache": np.array([False]), "rate": np.int64(RATE)}
    given = gt.run(gt.grad(open_one, loss="ce:y@axis=2"), fed | {"labels": labels})

    for name in ("w2", "w3"):
        assert fixed.gradients[name] == pytest.approx(given.gradients[name], rel=1e-5)


def test_training_keeps_the_input_in_the_file(path, run, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "data.npz",
        x=rng.standard_normal((8, 5, 8)).astype("f"), labels=rng.integers(0, 3, (8, 5)),
    )  # fmt: skip
    line = ["train", path, "--data", tmp_path / "data.npz", "--batch", "4", *FLAGS]
    outcome = run(*line, "--steps", "2")
    before, after = onnx.load(path), onnx.load(tmp_path / "speech.trained.onnx")
    changed = [
        old.name for old, new in zip(before.graph.initializer, after.graph.initializer, strict=True)
        if old.raw_data != new.raw_data
    ]  # fmt: skip

    assert outcome.code == 0
    assert after.graph.input == before.graph.input
    assert after.graph.node == before.graph.node
    assert changed == ["w2", "w3"]

    other = [each.replace("4000", "4999") for each in map(str, line)]
    again = run(*other, "--steps", "4", "--resume")
    assert again.code == 2


def test_a_run_leaves_aside_what_was_set(path, run, tmp_path):
    x = np.ones((1, 2, 8), np.float32)
    np.savez(tmp_path / "in.npz", x=x, rate=np.int64(RATE), use_cache=[False], past=x,
             labels=np.zeros((1, 2), np.int64))  # fmt: skip
    assert run("run", path, "--inputs", tmp_path / "in.npz", *FLAGS).code == 0

    np.savez(tmp_path / "in.npz", x=x, rate=np.int64(1), labels=np.zeros((1, 2), np.int64))
    outcome = run("run", path, "--inputs", tmp_path / "in.npz", *FLAGS)
    assert outcome.code == 2
    assert "'rate' is something else than the 4000 it was set to" in outcome.err


@pytest.mark.parametrize(
    "command",
    [
        ["grad"], ["report"], ["mirror", "--report"], ["recompute", "--frontier"], ["run"],
        ["ops"], ["kit"], ["report", "--ranks", "2"], ["compare", "--plan", "mirror"],
    ],
)  # fmt: skip
def test_every_command_with_sizes_takes_values(command, path, run):
    name, *rest = command
    sizes = [] if name == "ops" else ["--dim", "seq=3", "--batch", "2"]
    outcome = run(name, path, *rest, *sizes, *FLAGS)

    assert outcome.code == 0, outcome.err


@pytest.mark.usefixtures("path")
def test_init_writes_values_and_check_takes_them(run, tmp_path):
    assert run("init", *FLAGS, "--dim", "batch=2").code == 0
    assert "set = { rate = 4000, use_cache = false }" in (tmp_path / "gradtool.toml").read_text()
    assert run("check").code == 0
    assert run("grad", "--force").code == 0  # of the model that the case names

    text = (tmp_path / "gradtool.toml").read_text().replace("rate = 4000", "rate = []")
    (tmp_path / "gradtool.toml").write_text(text)
    outcome = run("check")
    assert outcome.code == 2
    assert "rate is []: write a number, true or false, or a list of them" in outcome.err


def test_a_plan_is_of_the_values_it_was_made_with(path, run, tmp_path):
    sizes = ["--dim", "seq=3", "--batch", "2"]
    plan = tmp_path / "plan.json"
    assert run("recompute", path, "--strategy", "mirror", "-o", plan, *sizes, *FLAGS).code == 0
    assert run("run", path, "--plan", plan, *sizes, *FLAGS).code == 0
    outcome = run("run", path, "--plan", plan, *sizes, "--set", "use_cache=1", *FLAGS[:2],
                  "--dim", "past=1")  # fmt: skip
    assert outcome.code == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("raet=1", "no such input; did you mean 'rate'?; inputs: x, past, use_cache, rate"),
        ("w1=3", "a tensor that the file holds, not an input"),
        ("rate=1.5", "1.5 is not a value of int64"),
        ("rate=fast", "fast is not a value of int64"),
        ("rate=99999999999999999999", "99999999999999999999 is not a value of int64"),
        ("rate=1,2", "2 numbers for an input of shape []"),
        ("rate=1,,2", "'1,,2' is no number, nor several with commas between"),
        ("use_cache=2", "2 is not a value of bool: true or false"),
        ("x=1", "1 number for an input of shape [batch,seq,8]"),
        ("x=1,2", "2 floats are data: feed the input instead"),
        ("x=" + "1," * 64 + "1", "65 numbers, the most are 64"),
        ("rate", "write INPUT=VALUE, as in rate=16000 or use_cache=false"),
        ("rate=", "write INPUT=VALUE"),
    ],
)
def test_a_value_that_an_input_cannot_have_is_refused(given, message, path, run):
    outcome = run("grad", path, "--set", given)

    assert outcome.code == 2
    assert message in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1


def test_a_value_in_python_is_of_the_type_of_its_input(path):
    for wrong in (1.5, True, "x", [1, 2], np.ones(100)):
        with pytest.raises(UsageError, match="--set rate"):
            gt.load(path, values={"rate": wrong})
    assert [v.name for v in gt.load(path, values={"rate": np.int64(RATE)}).graph.inputs][-1:] == [
        "use_cache"
    ]


def test_a_vector_gives_its_length_to_the_size_of_its_input():
    graph = helper.make_graph(
        [helper.make_node("Gather", ["x", "rows"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4]),
         helper.make_tensor_value_info("rows", TensorProto.INT64, ["k"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["k", 4])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    loaded = gt.load(model, values={"rows": [0, 2, 2]})

    assert [str(dim) for dim in loaded.graph.outputs[0].shape] == ["3", "4"]
