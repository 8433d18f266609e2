import logging

import onnx_ir as ir
import pytest

from gradtool import shapes
from gradtool.errors import ModelError
from gradtool.graph.metadata import ELEMENTS


def model(body, opset=20):
    return ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : {opset}]> g {body}')


def inferred(body):
    graph = model(body)
    shapes.infer(graph)
    return {
        value.name: str(value.shape) for node in graph.graph.all_nodes() for value in node.outputs
    }


def test_what_the_file_declares_is_not_believed():
    found = inferred("(float[n, 3] x) => (float[7] y) <float[9, 9] h> { h = Relu (x) y = Exp (h) }")

    assert found == {"h": "[n,3]", "y": "[n,3]"}


def test_sizes_are_expressions_in_the_symbols():
    found = inferred("(float[n, 3] x) => (y) { y = Concat <axis = 0> (x, x) }")

    assert found["y"] == "[2*n,3]"


def test_values_that_cannot_be_inferred_are_grouped_by_operator():
    graph = model("(float[n] x) => (y) { a = acme.Gate (x) b = acme.Gate (a) y = Relu (b) }")

    assert shapes.infer(graph) == (
        shapes.Unknown("acme::Gate", 2, "a"),
        shapes.Unknown("Relu", 1, "y"),
    )


def test_nothing_is_logged_to_the_terminal(capfd):
    shapes.infer(model("(float[n] x) => (y) { y = acme.Gate (x) }"))
    logging.getLogger("onnx_shape_inference").warning("hidden")

    assert capfd.readouterr() == ("", "")


def test_inputs_that_do_not_fit_are_an_error_that_names_the_node():
    graph = model("(float[2, 3] x, float[4, 5] w) => (y) { [product] y = MatMul (x, w) }")
    with pytest.raises(ModelError, match=r"MatMul.*'product'") as info:
        shapes.infer(graph)
    assert "\n" not in str(info.value)


def test_inference_may_be_repeated_after_a_symbol_is_bound():
    graph = model("(float[n, 3] x) => (y) { s = Shape (x) y = ConstantOfShape (s) }")
    shapes.infer(graph)
    graph.graph.inputs[0].shape = ir.Shape([5, 3])
    shapes.infer(graph)

    assert str(graph.graph.outputs[0].shape) == "[5,3]"


def test_the_notes_of_inference_can_be_removed():
    graph = model("(float[n, 3] x) => (y) { y = Shape (x) }")
    shapes.infer(graph)
    assert ELEMENTS in graph.graph.outputs[0].metadata_props

    shapes.strip(graph)
    assert ELEMENTS not in graph.graph.outputs[0].metadata_props


def test_a_constant_of_symbolic_shape_keeps_its_sizes():
    found = inferred("(float[n, 3] x) => (y) { s = Shape (x) y = ConstantOfShape (s) }")

    assert found["y"] == "[n,3]"


def test_a_constant_of_unknown_shape_has_a_known_rank():
    found = inferred("(int64[2] s) => (y) { y = ConstantOfShape (s) }")

    assert found["y"].count(",") == 1


@pytest.mark.parametrize(("parts", "size"), [(2, "3*n"), (3, "2*n"), (6, "n")])
def test_an_axis_that_divides_is_split_into_equal_expressions(parts, size):
    outputs = [f"y{part}" for part in range(parts)]
    found = inferred(
        f"(float[n] x) => ({', '.join(outputs)}) {{ z = Concat <axis = 0> (x, x, x, x, x, x) "
        f"{', '.join(outputs)} = Split <num_outputs = {parts}> (z) }}"
    )

    assert {found[name] for name in outputs} == {f"[{size}]"}


def test_an_axis_is_split_at_symbolic_sizes():
    found = inferred(
        "(float[n, 4] x, float[m, 4] z) => (a, b) "
        "{ s = Shape <end = 1> (x) t = Shape <end = 1> (z) c = Concat <axis = 0> (s, t) "
        "w = Concat <axis = 0> (x, z) a, b = Split (w, c) }"
    )

    assert (found["a"], found["b"]) == ("[n,4]", "[m,4]")


def test_a_slice_of_a_symbolic_axis_is_no_longer_than_the_axis():
    found = inferred(
        "(float[n] x) => (a, b) <int64[1] zero = {0}, int64[1] one = {1}, int64[1] five = {5}> "
        "{ a = Slice (x, zero, five) b = Slice (x, zero, one) }"
    )

    assert found == {"a": "[Min(5, n)]", "b": "[1]"}


def test_a_slice_of_the_last_places_of_an_axis_is_the_axis_if_these_are_all():
    found = inferred(
        "(float[n] x, float[m] z) => (a, b) <int64[1] far = {9223372036854775807}> "
        "{ s = Shape (x) last = Neg (s) a = Slice (x, last, far) b = Slice (z, last, far) }"
    )

    assert found["a"] == "[n]"
    assert found["b"] not in ("[n]", "[m]")


def test_vectors_that_are_data_are_not_written_out():
    body = " ".join(f"c{i + 1} = Concat <axis = 0> (c{i}, c{i})" for i in range(30))
    found = inferred(f"(int64[8] c0) => (c30) {{ {body} }}")

    assert found["c30"] == f"[{8 * 2**30}]"


def test_parts_that_do_not_fit_are_not_joined():
    with pytest.raises(ModelError, match="cannot be joined"):
        inferred("(float[2, 3] x, float[2, 4] z) => (y) { y = Concat <axis = 0> (x, z) }")


LOOP = """(int64 trips, bool go, float[n] x) => (y, s) {{
    y, s = Loop (trips, {start}, x) <body = b (int64 i, bool before, float[3] h) => (after, k, o) {{
        after = {after} (before) k = {turn} o = Exp (h) }}> }}"""


def test_a_loop_s_carried_value_keeps_the_sizes_that_every_turn_keeps():
    found = inferred(LOOP.format(start='""', after="Identity", turn="Neg (h)"))

    assert (found["y"], found["k"]) == ("[n]", "[n]")
    assert found["s"].endswith(",n]")


def test_a_loop_s_carried_value_that_grows_has_an_unknown_size():
    found = inferred(LOOP.format(start='""', after="Identity", turn="Concat <axis = 0> (h, h)"))

    assert "n]" not in found["y"]
    assert found["k"] == "[2*h_dim0]"


def test_a_loop_that_may_end_early_has_an_unknown_count():
    body = LOOP.replace("(int64 trips, ", "(").replace(
        "=> (y, s) {{", "=> (y, s) <int64 trips = {{4}}> {{"
    )
    full = inferred(body.format(start='""', after="Identity", turn="Neg (h)"))
    early = inferred(body.format(start="go", after="Not", turn="Neg (h)"))

    assert full["s"] == "[4,n]"
    assert not early["s"].startswith("[4")


def test_the_branches_of_an_if_are_inferred_and_merged():
    found = inferred(
        "(float[n, 3] x, bool c) => (y) { y = If (c) "
        "<then_branch = t () => (a) { a = Neg (x) }, "
        "else_branch = e () => (b) { b = Concat <axis = 0> (x, x) }> }"
    )

    assert found["a"] == "[n,3]"
    assert found["b"] == "[2*n,3]"
    assert found["y"].endswith(",3]")
    assert "n," not in found["y"]
