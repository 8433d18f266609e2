"""Elements of small vectors, and what decides the sizes that are not known."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import gradtool as gt
from gradtool.graph import deciding
from gradtool.shapes import contents

N = ir.SymbolicDim("n")


@pytest.mark.parametrize(
    ("operator", "a", "b", "result"),
    [
        ("Equal", N, -1, 0), ("Equal", N, 0, None), ("Equal", N + 1, 0, 0), ("Equal", N, N, 1),
        ("Equal", N * 2, 1, 0), ("Equal", N, 1, None),
        ("Less", N, 0, 0), ("Less", N, N + 1, 1), ("Less", 3, N, None),
        ("Greater", N + 2, 1, 1), ("GreaterOrEqual", N, 0, 1), ("LessOrEqual", N + 1, 0, 0),
        ("And", 0, N, 0), ("And", 1, 1, 1), ("And", 1, N, None), ("Or", N, 1, 1), ("Or", 0, 0, 0),
        ("Div", N, 2, "floor(n/2)"), ("Div", N, -2, None), ("Div", N, N, None),
        ("Mod", N, 4, "Mod(n, 4)"), ("Max", N, 3, "Max(3, n)"), ("Min", N, N, "n"),
        ("Max", N, N - 1, "n"),
    ],
)  # fmt: skip
def test_numbers_are_compared_as_sizes_that_may_be_0(operator, a, b, result):
    found = contents.RULES[operator](a, b)

    assert (found if found is None or isinstance(found, int) else str(found)) == result


def test_an_element_that_may_be_any_number_decides_nothing():
    unsure = ir.SymbolicDim("_v_d0")

    assert contents.RULES["Equal"](unsure, -1) is None
    assert contents.RULES["Max"](unsure, 0) is None
    assert not contents.is_nonnegative(unsure)


@pytest.mark.parametrize("n", [0, 1, 5, 9])
@pytest.mark.parametrize(("start", "end"), [(1, 3), (2, 2), (4, 9), (7, 20)])
def test_a_slice_takes_as_much_as_there_is(n, start, end):
    found = contents.extent(N, ir.SymbolicDim("s"), ir.SymbolicDim("e"))

    assert found.evaluate({"n": n, "s": start, "e": end}) == len(range(n)[start:end])


def model(text: str, **arrays: np.ndarray) -> onnx.ModelProto:
    made = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> g {text}')
    made.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in arrays.items())
    return made


EXPAND = model(
    "(float[b, 1] x) => (y) { s = Shape <start = 0, end = 1> (x)  t = Concat <axis = 0> (s, m)"
    " e = Equal (t, minus)  u = Where (e, one, t)  y = Expand (x, u) }",
    m=np.array([-1, 4]), minus=np.array([-1, -1, -1]), one=np.array([1, 1, 1]),
)  # fmt: skip


def test_a_size_of_minus_1_keeps_that_of_the_axis():
    """`x.expand(b, -1, 4)` as TorchScript writes it."""
    assert str(gt.load(EXPAND).graph.outputs[0].shape) == "[b,b,4]"


def squeezed(size: str) -> onnx.ModelProto:
    return model(
        f"(float[b, {size}] x) => (output) {{ s = Shape (x)  n = Gather (s, at)  c = Equal (n, one)"
        " output = If (c) <then_branch = t () => (p) { p = Squeeze (x, at) },"
        " else_branch = e () => (q) { q = Identity (x) }> }",
        at=np.array(1), one=np.array(1),
    ).SerializeToString()  # fmt: skip


def test_an_if_on_a_size_that_is_never_1_is_its_other_branch():
    loaded = gt.load(squeezed("4"))

    assert [node.op_type for node in loaded.graph if node.op_type == "If"] == []
    assert str(loaded.graph.outputs[0].shape) == "[b,4]"


RATED = model(
    "(float[b, n] x, int64 rate) => (y) { k = Unsqueeze (rate, zero)"
    " s = Slice (x, zero, k, one)  y = Relu (s) }",
    zero=np.array([0]), one=np.array([1]),
)  # fmt: skip
PICKED = model("(float[b, n] x) => (y) { i = NonZero (x)  y = Cast <to = 1> (i) }")


@pytest.mark.parametrize(
    ("proto", "told"),
    [(RATED, "give --set rate=VALUE"), (PICKED, "the numbers in 'x' decide it: no flag does")],
)
def test_what_decides_a_size_is_named(proto, told):
    loaded = gt.load(proto)
    (symbol,) = {
        str(dim) for dim in loaded.graph.outputs[0].shape if deciding.is_inferred(str(dim))
    }

    assert told in deciding.of_symbol(loaded.graph, symbol)


def test_the_flag_that_a_message_names_works(run, tmp_path):
    onnx.save(RATED, tmp_path / "rated.onnx")
    sizes = ["--dim", "b=2", "--dim", "n=8"]
    refused = run("run", tmp_path / "rated.onnx", "--loss", "l1:y", *sizes)
    assert refused.code == 2
    assert "give --set rate=VALUE" in refused.err
    assert (
        run("run", tmp_path / "rated.onnx", "--loss", "l1:y", *sizes, "--set", "rate=3").code == 0
    )


def test_branches_of_other_ranks_are_named_with_the_size_that_decides(run, tmp_path):
    proto = onnx.ModelProto.FromString(squeezed("4"))
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "n"
    onnx.save(proto, tmp_path / "squeezed.onnx")
    refused = run("grad", tmp_path / "squeezed.onnx", "--input-grad", "x", "--loss", "mean")
    assert refused.code == 3
    assert "has branches of 1 and 2 axes): give --dim n=N" in refused.err
    for size in (1, 4):
        line = ["grad", tmp_path / "squeezed.onnx", "--force", "--dim", f"n={size}"]
        assert run(*line, "--input-grad", "x", "--loss", "mean").code == 0
