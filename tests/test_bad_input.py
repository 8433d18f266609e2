"""Every way to be wrong: one line on stderr, the exit code, no traceback, nothing written."""

import os

import numpy as np
import onnx
import pytest
from conftest import TINY, build, tiny_weights
from onnx import TensorProto, helper

CYCLE = """g (float[4] x) => (float loss) {
    a = Add (x, c)
    c = Exp (a)
    loss = ReduceSum <keepdims = 0> (c)
}"""
NO_RULE = """g (float[4] x) => (float loss) {
    a = com.acme.Gate (x)
    b = com.acme.Gate (a)
    c = com.acme.Door (b)
    loss = ReduceSum <keepdims = 0> (c)
}"""
TWO_SYMBOLS = """g (float[batch, steps] x) => (float loss) {
    loss = ReduceSum <keepdims = 0> (x)
}"""


@pytest.fixture
def refused(run, tmp_path):
    """Asserts that a command line ends with `code`, one line, and no file that was not there."""

    def check(code, *arguments):
        before = sorted(tmp_path.iterdir())
        outcome = run("-q", *arguments)
        assert outcome.code == code
        assert outcome.err.startswith("gradtool: ")
        assert outcome.err.count("\n") == 1
        assert sorted(tmp_path.iterdir()) == before
        return outcome.err.removeprefix("gradtool: ").rstrip("\n")

    return check


def test_a_missing_file(refused, tmp_path):
    assert refused(2, "grad", "none.onnx") == f"{tmp_path}/none.onnx: no such file"


def test_an_empty_file(refused, tmp_path):
    (tmp_path / "empty.onnx").touch()

    assert "empty.onnx: is empty" in refused(2, "grad", "empty.onnx")


def test_a_truncated_file(refused, tiny_model):
    tiny_model.write_bytes(tiny_model.read_bytes()[:-40])

    assert "is not an ONNX model, or is truncated" in refused(2, "grad", tiny_model)


@pytest.mark.parametrize("content", [b"hello world\n", b"\x89PNG\r\n\x1a\n", b"PK\x03\x04", b"\0"])
def test_a_file_that_is_something_else(refused, tmp_path, content):
    (tmp_path / "other.onnx").write_bytes(content)

    assert "is not an ONNX model" in refused(2, "grad", "other.onnx")


@pytest.mark.parametrize("name", ["pointer.onnx", "pointer.onnxtxt"])
def test_a_pointer_to_large_file_storage(refused, tmp_path, name):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12345\n"
    (tmp_path / name).write_text(pointer)

    assert f"{name}: is a Git LFS pointer to the model: run git lfs" in refused(2, "grad", name)


def test_text_that_is_no_onnx_text(refused, tmp_path):
    (tmp_path / "other.onnxtxt").write_text("hello")

    assert "other.onnxtxt: is not ONNX text" in refused(2, "grad", "other.onnxtxt")


def test_a_folder(refused, tmp_path):
    (tmp_path / "folder").mkdir()

    assert "folder: is a folder" in refused(2, "grad", "folder")


def test_an_unknown_value_gets_a_suggestion(refused, model):
    path = model(TINY.replace("w)", "weight)"), weight=tiny_weights()["w"], b=tiny_weights()["b"])

    message = refused(2, "grad", path, "--wrt", "wieght")

    assert message == "--wrt wieght: no such value; did you mean 'weight'?"


def test_a_value_that_the_loss_does_not_depend_on(refused, model):
    path = model(TINY, **tiny_weights(), lonely=np.ones(3, np.float32))

    message = refused(3, "grad", path, "--wrt", "lonely")

    assert "the loss does not depend on lonely" in message


def test_a_list_of_values_that_cannot_be_read(refused, tiny_model):
    message = refused(2, "grad", tiny_model, "--wrt", "@none.txt")

    assert message == "@none.txt: cannot be read: No such file or directory"


def test_an_unknown_symbol_gets_the_list(refused, model):
    path = model(TWO_SYMBOLS)

    message = refused(2, "grad", path, "--dim", "bacth=2")

    assert "--dim bacth: no such symbol" in message
    assert "batch, steps" in message
    assert "did you mean 'batch'?" in message


@pytest.mark.parametrize("size", ["batch", "batch=", "batch=-1", "batch=x", "=3"])
def test_a_malformed_size(refused, tiny_model, size):
    assert "write NAME=SIZE with a whole number" in refused(2, "grad", tiny_model, "--dim", size)


def test_a_symbol_given_twice(refused, tiny_model):
    message = refused(2, "grad", tiny_model, "--dim", "batch=2", "--dim", "batch=3")

    assert message == "--dim batch: given as 2 and as 3"


def test_a_shape_that_contradicts_the_file(refused, tiny_model):
    message = refused(2, "grad", tiny_model, "--shape", "x=2x9")

    assert "--shape x: axis 1 is fixed at 8 in the model, not 9" in message


def test_a_shape_that_contradicts_a_size(refused, tiny_model):
    message = refused(2, "grad", tiny_model, "--dim", "batch=2", "--shape", "x=3x8")

    assert "--shape x: batch is given as 2 and as 3" in message


def test_an_unknown_loss_gets_a_suggestion(refused, tiny_model):
    message = refused(2, "grad", tiny_model, "--loss", "bce-logit")

    assert "--loss bce-logit" in message
    assert "did you mean 'bce-logits'?" in message


def test_operators_without_a_rule_are_all_listed(run, model):
    header = '<ir_version: 10, opset_import: ["" : 20, "com.acme" : 1]>'
    path = model(build(NO_RULE, header))

    outcome = run("grad", path)

    assert outcome.code == 3
    assert not outcome.out
    lines = outcome.err.splitlines()
    assert any(line.split()[:2] == ["com.acme::Gate", "2"] for line in lines)
    assert any(line.split()[:2] == ["com.acme::Door", "1"] for line in lines)
    assert lines[-1].startswith("gradtool: no gradient for com.acme::Gate")
    assert "1 more operator" in lines[-1]


def test_a_cyclic_graph(refused, model):
    message = refused(2, "grad", model(CYCLE))

    assert "'c'" in message


def test_open_sizes(refused, tiny_model):
    message = refused(2, "run", tiny_model)

    assert "'batch'" in message
    assert "--dim batch=N" in message


def test_an_input_that_the_file_lacks(refused, tiny_model, tmp_path):
    np.savez(tmp_path / "other.npz", y=np.ones(2, np.float32))

    message = refused(2, "run", tiny_model, "--inputs", "other.npz")

    assert message == "other.npz: no input or parameter 'y'; the model takes x"


def test_an_input_of_another_type(refused, tiny_model, tmp_path):
    np.savez(tmp_path / "inputs.npz", x=np.ones((2, 8)))

    message = refused(2, "run", tiny_model, "--inputs", "inputs.npz")

    assert message == "inputs.npz: input 'x' is float64, the model takes float32"


@pytest.mark.parametrize("shape", [(2, 9), (2,), (8, 2, 8)])
def test_an_input_of_another_shape(refused, tiny_model, tmp_path, shape):
    np.savez(tmp_path / "inputs.npz", x=np.ones(shape, np.float32))

    assert "input 'x' has " in refused(2, "run", tiny_model, "--inputs", "inputs.npz")


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04", b"\x93NUMPY\x01\x00"])
def test_inputs_that_are_no_arrays(refused, tiny_model, tmp_path, content):
    (tmp_path / "inputs.npz").write_bytes(content)

    assert "inputs.npz: not a readable" in refused(2, "run", tiny_model, "--inputs", "inputs.npz")


def test_pickled_inputs_are_not_opened(refused, tiny_model, tmp_path):
    np.savez(tmp_path / "inputs.npz", x=np.array([{}], dtype=object), allow_pickle=True)

    assert "not a readable" in refused(2, "run", tiny_model, "--inputs", "inputs.npz")


def external(location):
    """`tiny` with weight `w` in a file of its own."""
    proto = build(TINY, **tiny_weights())
    tensor = proto.graph.initializer[0]
    size = len(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": "0", "length": str(size)}.items():
        tensor.external_data.add(key=key, value=value)
    return proto


def test_weights_that_are_absent_are_missed_only_when_run(run, refused, model):
    path = model(external("w.bin"))

    assert run("grad", path).code == 0
    assert run("report", path).code == 0
    message = refused(2, "run", path, "--dim", "batch=2")
    assert "'w'" in message


@pytest.mark.parametrize("location", ["../w.bin", "/etc/passwd", "a/../../w.bin"])
def test_external_data_outside_of_the_folder(refused, model, location):
    message = refused(2, "grad", model(external(location)))

    assert f"{location!r} is not a plain path inside the model's folder" in message


def test_external_data_behind_a_link_that_leads_out(refused, model, tmp_path):
    outside = tmp_path.parent / f"{tmp_path.name}.bin"
    outside.write_bytes(bytes(128))
    (tmp_path / "w.bin").symlink_to(outside)

    assert "leads out of the model's folder" in refused(2, "grad", model(external("w.bin")))


def test_an_output_that_exists(run, refused, tiny_model, tmp_path):
    output = tmp_path / "tiny.grad.onnx"
    output.write_text("precious")

    assert "exists; pass --force to overwrite" in refused(2, "grad", tiny_model)
    assert output.read_text() == "precious"
    assert run("grad", tiny_model, "--force").code == 0
    assert output.read_bytes() != b"precious"


@pytest.mark.parametrize("flag", ["--save-grads", "--save-outputs"])
def test_results_that_exist(run, refused, tiny_model, tiny_inputs, tmp_path, flag):
    output = tmp_path / "results.npz"
    output.write_text("precious")
    command = ("run", tiny_model, "--inputs", tiny_inputs, flag, output)

    assert "exists; pass --force to overwrite" in refused(2, *command)
    assert output.read_text() == "precious"
    assert run(*command, "--force").code == 0
    assert output.read_bytes()[:2] == b"PK"


def test_a_folder_that_cannot_be_written(refused, tiny_model, tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(os, "access", lambda *_: False)

    assert "its folder is read-only" in refused(2, "grad", tiny_model, "-o", "out/x.onnx")


def test_an_output_folder_that_does_not_exist(refused, tiny_model):
    assert "there is no folder" in refused(2, "grad", tiny_model, "-o", "none/x.onnx")


def test_a_device_that_is_missing(refused, tiny_model, tiny_inputs, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)

    message = refused(4, "run", tiny_model, "--inputs", tiny_inputs, "--device", "cuda")

    assert "CuPy is not installed" in message
    assert "pip install 'cupy-cuda12x>=14'" in message


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cuda:-1", ""])
def test_an_unknown_device(refused, tiny_model, device):
    assert "use auto, cpu, cuda or cuda:N" in refused(2, "run", tiny_model, "--device", device)


def test_an_engine_without_an_arena_to_check(refused, tiny_model):
    message = refused(2, "run", tiny_model, "--engine", "ort", "--check-arena")

    assert "--engine arena" in message


def test_a_training_graph_is_not_differentiated_again(run, refused, tiny_model):
    assert run("grad", tiny_model).code == 0

    assert "already holds gradients" in refused(2, "grad", "tiny.grad.onnx")


def test_a_newer_format(refused, model):
    proto = build(TINY, **tiny_weights())
    proto.ir_version = onnx.IR_VERSION + 1

    assert "upgrade onnx" in refused(2, "grad", model(proto))


def test_an_operator_that_does_not_exist(refused, model):
    proto = build(TINY, **tiny_weights())
    proto.graph.node.append(helper.make_node("Frobnicate", ["x"], ["z"]))

    assert "Frobnicate" in refused(2, "grad", model(proto))


def test_an_unknown_operator_before_a_cast_is_not_a_zero_gradient(run, model):
    body = """g (float[4] x) => (float loss) {
        a = com.acme.Gate (x)
        c = Cast <to = 1> (a)
        four = Constant <value_ints = [4]> ()
        r = Reshape (c, four)
        loss = ReduceSum <keepdims = 0> (r)
    }"""
    header = '<ir_version: 10, opset_import: ["" : 20, "com.acme" : 1]>'

    outcome = run("grad", model(build(body, header)))

    assert outcome.code == 3
    assert "no gradient for com.acme::Gate" in outcome.err
