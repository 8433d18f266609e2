import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from gradtool import io
from gradtool.errors import ModelError
from gradtool.io import choices

X = "float[2, 3] x"


def refused(write, model, match):
    with pytest.raises(ModelError, match=match) as info:
        io.load(write(model))
    assert "\n" not in str(info.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{ y = Relu (z) }", "reads 'z', which nothing defines"),
        ("{ y = Add (x, y) }", "part of a cycle through 'y'"),
        ("{ a = Add (x, b) b = Neg (a) y = Neg (b) }", "part of a cycle through 'b'"),
        ("{ y = Neg (a) a = Neg (x) }", "before Neg .* writes it; sort"),
        ("{ y = Neg (x) y = Exp (x) }", "'y' has the name of another value"),
        ("{ x = Neg (x) y = Neg (x) }", "'x' has the name of another value"),
        ("{ z = Neg (x) }", "output 'y' is written by no node"),
        ("{ y = Frobnicate (x) }", "'Frobnicate' is no operator of 'ai.onnx'"),
        ("{ y = Add (x) }", "has 1 inputs, Add takes 2"),
        ("{ y, z = Relu (x) }", "has 2 outputs, Relu takes 1"),
        ('{ y = Add (x, "") }', "a required input is left out"),
        ("{ y = Relu <evil = 1> (x) }", "Relu has no attribute 'evil'"),
        ('{ y = Softmax <axis = "a"> (x) }', "'axis' has the wrong type"),
        ("{ y = Cast (x) }", "required attribute 'to' is missing"),
        ("{ y = other.Op (x) }", "its domain 'other' is not imported"),
        ("{ y = Upsample (x, x) }", "is not in opset 20"),
    ],
)
def test_a_broken_node_is_named_with_the_rule(write, body, message):
    refused(write, f"g ({X}) => (float[2, 3] y) {body}", message)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("(float[2, 3] x, int64[2, 3] k) => (y) { y = Add (x, k) }", "is a tensor.int64., another"),
        ("(int64[2] x) => (y) { y = Exp (x) }", "is a tensor.int64., which it does not take"),
        ("(int64[2] x) => (y) <int64 z = {0}> { y = Div (x, z) }", "divides integers by zero"),
        ("(float[2, 3] x) => (y) { y = Transpose <perm = [0, 0]> (x) }", "is no permutation"),
        ("(float[2] x) => (y) <int64[1] i = {5}> { y = Gather (x, i) }", "index 5 is out of range"),
        ("(float[2] x) => (y) <int64[2] a = {0, 0}> { y = ReduceSum (x, a) }", "an axis twice"),
        (
            "(float[2, 3] x) => (y) <float[1] a = {0}> { y = ReduceSum (x, a) }",
            "input 1 is a tensor.float., which it does not take",
        ),
        (
            "(float x) => (y) { q = SplitToSequence (x) y = ConcatFromSequence <axis = 0> (q) }",
            "a scalar has no axis to split",
        ),
        ("(float[1,2,5,5] x, float[2,2,3,3] w) => (y) { y = Conv <group = 7> (x, w) }", "channels"),
        (
            "(float[1,2,5] x) => (y) { y = MaxPool <kernel_shape = [2], pads = [4, 0]> (x) }",
            "must be smaller than the kernel",
        ),
        (
            "(float[4] x) => (a, b) <int64[2] s = {1, 1}> { a, b = Split (x, s) }",
            "do not add up to 4",
        ),
    ],
)
def test_an_operator_that_could_not_run_is_refused(write, body, message):
    refused(write, f"g {body}", message)


def test_a_branch_may_not_reuse_a_name_of_the_outer_graph(write):
    branch = "{ x = Neg (x) }"
    model = (
        f"g ({X}, bool c) => (float[2, 3] y) {{ y = If (c) "
        f"<then_branch = t () => (x) {branch}, else_branch = e () => (x) {branch}> }}"
    )
    refused(write, model, "'x' has the name of another value")


def test_a_cycle_through_a_branch_is_found(write):
    model = (
        f"g ({X}, bool c) => (float[2, 3] y) {{ y = If (c) "
        "<then_branch = t () => (a) { a = Neg (z) }, else_branch = e () => (b) { b = Neg (x) }> "
        "z = Exp (y) }"
    )
    refused(write, model, "part of a cycle through 'z'")


@pytest.mark.parametrize(
    ("version", "message"), [(0, "imports opset 0"), (9999, "imports opset 9999; the newest")]
)
def test_an_opset_that_does_not_exist_is_refused(write, text, version, message):
    model = text(f"g ({X}) => (y) {{ y = Relu (x) }}")
    model.opset_import[0].version = version
    refused(write, model, message)


def test_two_versions_of_the_standard_domain_are_refused(write, text):
    model = text(f"g ({X}) => (y) {{ y = Relu (x) }}")
    model.opset_import.append(helper.make_opsetid("ai.onnx", 11))
    refused(write, model, "imports domain 'ai.onnx' at versions 20 and 11")


@pytest.mark.parametrize("version", [2**31, -(2**31), 2**63 - 1])
@pytest.mark.parametrize("domain", ["ai.onnx.ml", "ai.onnx.preview.training", "com.example"])
def test_a_version_that_no_domain_has_is_refused(write, text, domain, version):
    model = text(f"g ({X}) => (y) {{ y = Relu (x) }}")
    model.opset_import.append(helper.make_opsetid(domain, version))
    refused(write, model, f"imports domain '{domain}' at version {version}, which no domain has")


def test_a_model_without_imports_is_refused(write, text):
    model = text(f"g ({X}) => (y) {{ y = Relu (x) }}")
    del model.opset_import[:]
    refused(write, model, "imports no operator set")


def test_a_local_function_may_not_override_a_standard_operator(write, text):
    model = text(f"g ({X}) => (y) {{ y = Relu (x) }}")
    function = helper.make_function(
        "", "Relu", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], model.opset_import
    )
    model.functions.append(function)
    refused(write, model, "'Relu' overrides a standard operator")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.dims.__setitem__(0, -3), "negative size"),
        (lambda t: t.dims.__setitem__(0, 2**40), "bytes of data, shape|declares"),
        (lambda t: t.dims.__setitem__(0, 2**62), "declares 18446744073709551616 bytes"),
        (lambda t: setattr(t, "raw_data", t.raw_data[:-1]), "has 11 bytes of data"),
        (lambda t: t.ClearField("raw_data"), "has no data"),
        (lambda t: t.int64_data.append(1), "has data in int64_data and in raw_data"),
        (lambda t: setattr(t, "data_type", 0), "0 is not an element type"),
        (lambda t: setattr(t, "data_type", 99), "99 is not an element type"),
    ],
)
def test_a_tensor_that_lies_about_its_size_is_refused(write, weighted, change, message):
    model = weighted(3)
    change(model.graph.initializer[0])
    refused(write, model, message)


def test_data_in_the_field_of_another_type_is_refused(write, weighted):
    model = weighted(3)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.int64_data.extend([1, 2, 3])
    refused(write, model, "FLOAT data cannot be in int64_data")


def test_a_negative_size_of_an_input_is_refused(write, text):
    model = text(f"g ({X}) => (y) {{ y = Relu (x) }}")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -5
    refused(write, model, "negative size -5")


def test_a_default_that_does_not_fit_its_input_is_refused(write, weighted):
    model = weighted(3)
    model.graph.input.append(helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [9]))
    refused(write, model, "its shape differs from its initializer's")


def test_a_name_that_is_no_text_is_refused(write, text):
    data = text(f"g ({X}) => (y) {{ y = Relu (x) }}").SerializeToString()
    path = write(f"g ({X}) => (y) {{ y = Relu (x) }}")
    path.write_bytes(data.replace(b"\x01y", b"\x01\xff"))
    with pytest.raises(ModelError, match="not UTF-8"):
        io.load(path)


def test_an_operator_of_another_vendor_is_let_through(write, text):
    model = text(f"g ({X}) => (y) {{ y = Relu (x) }}")
    model.graph.node[0].domain = "com.acme"
    model.opset_import.append(helper.make_opsetid("com.acme", 1))

    assert next(iter(io.load(write(model)).graph)).domain == "com.acme"


@pytest.mark.parametrize("said", [("ax", 7, [1]), ("x", 1, [9, 9])])
def test_what_tensors_and_inputs_are_outweighs_what_is_said_of_them_again(text, tmp_path, said):
    """A stale description of an initializer or an input is not believed."""
    proto = text("g (float[2, 3] x) => (y) <int64[1] ax = {1}> { y = ReduceSum (x, ax) }")
    name, kind, shape = said
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.zeros(1, np.double), "ax"))
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info(name, kind, shape))
    onnx.save(proto, tmp_path / "model.onnx")

    with pytest.raises(ModelError, match=r"input 1 is a tensor.double., which it does not take"):
        io.load(tmp_path / "model.onnx")


@pytest.mark.parametrize("shape", ["0", "2", "4, 2"])
def test_positions_fit_the_sequences_that_they_are_of(write, text, shape):
    inputs = f"float[2, 4, 18] x, float[10, 2] c, float[10, 2] s, int64[{shape}] p"
    node = "y = RotaryEmbedding <num_heads = 3, rotary_embedding_dim = 4> (x, c, s, p)"
    body = f"g ({inputs}) => (y) {{ {node} }}"
    refused(write, text(body, opset=23), "its positions have shape")


@pytest.mark.parametrize(
    ("tables", "positions", "message"),
    [
        ("[10, 4]", "int64[2, 4] p", "cosines have shape"),
        ("[2, 4, 3]", "int64[2, 4] p", "cosines have shape"),
        ("[2, 4, 3]", "", "cosines have shape"),
        ("[10, 2]", "", "cosines have shape"),
    ],
)
def test_tables_of_angles_fit_what_they_turn(write, text, tables, positions, message):
    inputs = f"float[2, 4, 18] x, float{tables} c, float{tables} s"
    given = ", p" if positions else ""
    node = f"y = RotaryEmbedding <num_heads = 3, rotary_embedding_dim = 4> (x, c, s{given})"
    inputs += f", {positions}" if positions else ""
    refused(write, text(f"g ({inputs}) => (y) {{ {node} }}", opset=23), message)


@pytest.mark.parametrize("size", [3, 8, -2])
def test_a_head_is_turned_in_pairs_of_its_elements(write, text, size):
    node = f"y = RotaryEmbedding <num_heads = 3, rotary_embedding_dim = {size}> (x, c, s)"
    body = f"g (float[2, 4, 18] x, float[2, 4, 2] c, float[2, 4, 2] s) => (y) {{ {node} }}"
    refused(write, text(body, opset=23), "cannot be turned in pairs")


@pytest.mark.parametrize(
    ("past", "message"), [("k, ", "keys without values"), ('"", k', "values without keys"),
                          ("k, v", "different lengths")]
)  # fmt: skip
def test_a_past_has_a_key_for_each_value(write, text, past, message):
    x = "float[2, 2, 3, 4]"
    inputs = f"{x} q, {x} a, {x} b, float[2, 2, 5, 4] k, float[2, 2, 6, 4] v"
    past = past.removesuffix(", ")
    body = f'g ({inputs}) => (y, n, m) {{ y, n, m = Attention (q, a, b, "", {past}) }}'
    refused(write, text(body, opset=23), message)


@pytest.mark.parametrize(
    ("operator", "name"), [(o, n) for o, words in choices.WORDS.items() for n in words]
)
def test_a_mode_is_one_of_the_words_of_its_operator(operator, name):
    defaults = {n: words[0] for n, words in choices.WORDS[operator].items()}
    assert choices.broken(ir.node(operator, [ir.val("x")], defaults)) is None
    odd = ir.node(operator, [ir.val("x")], {**defaults, name: "odd"})
    assert choices.broken(odd).startswith(f"{name} 'odd' must be one of")


@pytest.mark.parametrize("groups", [0, 5, 7])
def test_channels_divide_into_groups(write, text, groups):
    node = f"y = GroupNormalization <num_groups = {groups}> (x, s, b)"
    body = f"g (float[2, 6, 4] x, float[6] s, float[6] b) => (y) {{ {node} }}"
    refused(write, text(body, opset=21), f"cannot be split into {groups} groups")


@pytest.mark.parametrize("name", ["output_padding", "strides", "dilations"])
def test_a_window_has_a_number_for_each_axis(write, text, name):
    node = f"y = ConvTranspose <{name} = [1]> (x, w)"
    body = f"g (float[2, 2, 4, 3] x, float[2, 2, 3, 3] w) => (y) {{ {node} }}"
    refused(write, text(body, opset=20), name)
