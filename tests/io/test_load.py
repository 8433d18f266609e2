import io as streams
import os
import random
import types

import onnx
import pytest

from gradtool import io
from gradtool.errors import ModelError

RELU = "g (float[batch, 4] x) => (float[batch, 4] y) { y = Relu (x) }"


def test_a_model_is_loaded_with_types_and_shapes_of_every_value(write):
    model = io.load(write("g (float[batch, 4] x) => (y) { h = Relu (x) y = Exp (h) }"))

    assert [str(node.outputs[0].shape) for node in model.graph] == ["[batch,4]"] * 2


def test_the_path_is_recorded_and_no_opset_was_raised(write):
    path = write(RELU)

    assert io.load(path).meta["gradtool.path"] == path.resolve()
    assert "gradtool.raised_from" not in io.load(path).meta


def test_a_minus_reads_standard_input(text, monkeypatch):
    stdin = types.SimpleNamespace(buffer=streams.BytesIO(text(RELU).SerializeToString()))
    monkeypatch.setattr("sys.stdin", stdin)
    model = io.load("-")

    assert model.meta["gradtool.path"] is None
    assert io.symbols(model) == ["batch"]


def test_the_text_form_is_read_by_its_suffix(tmp_path):
    path = tmp_path / "model.onnxtxt"
    path.write_text(f'<ir_version: 10, opset_import: ["" : 20]> {RELU}')

    assert [node.op_type for node in io.load(path).graph] == ["Relu"]


def test_broken_text_is_refused(tmp_path):
    path = tmp_path / "model.onnxtxt"
    path.write_text("g (float x => y")
    with pytest.raises(ModelError, match="is not ONNX text"):
        io.load(path)


def test_deeply_nested_text_never_reaches_the_parser(tmp_path):
    path = tmp_path / "model.onnxtxt"
    path.write_text("(" * 100_000)
    with pytest.raises(ModelError, match="nested more than"):
        io.load(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"none\.onnx: no such file"):
        io.load(tmp_path / "none.onnx")


def test_an_empty_file_is_refused(tmp_path):
    path = tmp_path / "empty.onnx"
    path.touch()
    with pytest.raises(ModelError, match="is empty"):
        io.load(path)


def test_a_truncated_file_is_refused(write):
    path = write(RELU)
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ModelError, match="is truncated"):
        io.load(path)


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(ModelError, match="is a folder"):
        io.load(tmp_path)


def test_something_else_than_a_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(ModelError, match="not a regular file"):
        io.load(tmp_path / "pipe.onnx")


@pytest.mark.parametrize("content", [b"<html>", b"{}", b"PK\x03\x04", b"plain text"])
def test_what_is_no_protobuf_is_refused(tmp_path, content):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match="not an ONNX model"):
        io.load(path)


def test_a_protobuf_without_a_graph_is_refused(write):
    with pytest.raises(ModelError, match="it has no graph"):
        io.load(write(onnx.ModelProto(ir_version=8)))


def test_a_file_over_the_limit_is_not_read(write):
    with pytest.raises(ModelError, match="external data"):
        io.load(write(RELU), limits=io.Limits(file_bytes=10))


def test_a_path_with_a_zero_byte_is_refused():
    with pytest.raises(ModelError, match="is not a path"):
        io.load("a\0b")


def test_local_functions_are_inlined_except_those_kept(tmp_path):
    path = tmp_path / "model.onnxtxt"
    path.write_text(
        '<ir_version: 10, opset_import: ["" : 20, "local" : 1]>'
        "g (float[3] x) => (float[3] y) { h = local.Twice (x) y = local.Scaled <by = 3.0> (h) }"
        '<domain: "local", opset_import: ["" : 20, "local" : 1]>'
        "Twice (a) => (b) { b = Add (a, a) }"
        '<domain: "local", opset_import: ["" : 20]>'
        "Scaled <by> (a) => (b) "
        "{ k = Constant <value_float: float = @by> () k1 = Identity (k) b = Mul (a, k1) }"
    )
    everything = io.load(path)
    some = io.load(path, keep_function=lambda _, name: name == "Twice")

    assert [node.op_type for node in everything.graph] == ["Add", "Constant", "Identity", "Mul"]
    assert not everything.functions
    assert everything.graph.outputs[0].name == "y"
    assert str(everything.graph.outputs[0].shape) == "[3]"
    assert [node.op_type for node in some.graph][:2] == ["Twice", "Constant"]
    assert [key[1] for key in some.functions] == ["Twice"]


def test_a_function_called_twice_gets_different_names(tmp_path):
    path = tmp_path / "model.onnxtxt"
    path.write_text(
        '<ir_version: 10, opset_import: ["" : 20, "local" : 1]>'
        "g (float[3] x) => (float[3] y) { h = local.F (x) y = local.F (h) }"
        '<domain: "local", opset_import: ["" : 20]> F (a) => (b) { t = Exp (a) b = Neg (t) }'
    )
    names = [value.name for node in io.load(path).graph for value in node.outputs]

    assert len(names) == len(set(names)) == 4


def test_functions_that_expand_without_bound_are_refused(tmp_path):
    path = tmp_path / "model.onnxtxt"
    levels = "".join(
        f'<domain: "l", opset_import: ["" : 20, "l" : 1]> '
        f"F{i} (a) => (b) {{ t = l.F{i + 1} (a) b = l.F{i + 1} (t) }}"
        for i in range(25)
    )
    path.write_text(
        '<ir_version: 10, opset_import: ["" : 20, "l" : 1]>'
        "g (float[3] x) => (float[3] y) { y = l.F0 (x) }"
        + levels
        + '<domain: "l", opset_import: ["" : 20]> F25 (a) => (b) { b = Neg (a) }'
    )
    with pytest.raises(ModelError, match="expand to more than"):
        io.load(path)


def test_a_function_that_calls_itself_is_refused(tmp_path):
    path = tmp_path / "model.onnxtxt"
    path.write_text(
        '<ir_version: 10, opset_import: ["" : 20, "l" : 1]>'
        "g (float[3] x) => (float[3] y) { y = l.F (x) }"
        '<domain: "l", opset_import: ["" : 20, "l" : 1]> F (a) => (b) { b = l.F (a) }'
    )
    with pytest.raises(ModelError, match="'F' calls itself"):
        io.load(path)


@pytest.mark.parametrize("branch", ["then_branch", "else_branch"])
def test_a_branch_need_not_return_the_shape_that_it_declares(write, branch):
    """TorchScript declares the shape of one branch for both, of which only one ever runs."""
    bodies = {
        "then_branch": "g1 () => (float[12] p) { p = Reshape (x, flat) }",
        "else_branch": "g2 () => (float[3, 4] q) { q = Reshape (x, sizes) }",
    }
    lie = {"then_branch": ("[12] p", "[3, 4] p"), "else_branch": ("[3, 4] q", "[12] q")}[branch]
    bodies[branch] = bodies[branch].replace(*lie)
    both = ", ".join(f"{name} = {body}" for name, body in bodies.items())
    model = io.load(
        write(
            f"""g (float[3, 4] x) => (float y)
            <bool c = {{0}}, int64[2] sizes = {{3, 4}}, int64[1] flat = {{12}}>
            {{ r = If (c) <{both}> y = ReduceSum <keepdims = 0> (r) }}"""
        )
    )

    taken = [node for node in model.graph if node.op_type == "Reshape"]
    assert [list(node.outputs[0].shape) for node in taken] == [[3, 4]]


def test_a_value_over_the_limit_is_refused(write):
    with pytest.raises(ModelError, match="the limit is"):
        io.load(write("g (float[1000] x) => (y) { y = Relu (x) }"), limits=io.Limits(value_bytes=1))


def test_a_constant_made_of_a_few_bytes_is_bounded(write):
    bomb = "g () => (y) <int64[1] s = {1000000}> { y = ConstantOfShape (s) }"
    with pytest.raises(ModelError, match="makes a constant of 4000000 bytes"):
        io.load(write(bomb), limits=io.Limits(constant_bytes=10**6))


def test_symbols_are_names_even_where_they_look_like_code(text, write):
    model = text(RELU)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "9**N**9 ()"

    assert io.symbols(io.load(write(model))) == ["dim_9_N_9_"]


def test_a_size_without_a_name_gets_one(text, write):
    model = text(RELU)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "?"

    assert io.symbols(io.load(write(model))) == ["x_dim0"]


def test_damaged_files_give_declared_errors_only(write, text):
    model = text(
        "g (float[n, 2, 5] x, bool c, float[2, 2, 3] w) => (y) "
        "{ h = Conv <pads = [1, 1]> (x, w) "
        "y = If (c) <then_branch = t () => (a) { a = Relu (h) }, "
        "else_branch = e () => (b) { b = Softmax <axis = 1> (h) }> }"
    )
    path = write(model)
    data = path.read_bytes()
    dice = random.Random(0)  # noqa: S311 - not a secret
    for _ in range(300):
        damaged = bytearray(data)
        damaged[dice.randrange(len(data))] = dice.randrange(256)
        path.write_bytes(damaged)
        try:
            io.load(path)
        except ModelError as error:
            assert "\n" not in str(error)  # noqa: PT017 - most, not all, are refused
