"""Large bodies written a piece at a time beside barriers: the same results, and found again."""

from __future__ import annotations

import graphs
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from conftest import trials
from graphs import floats
from hypothesis import given, settings
from hypothesis import strategies as st

import gradtool as gt
from gradtool.ops.attention import body_rows as _rows
from gradtool.ops.shared import tiling as _pieces

LAYERS = 5
BODIES = {
    "Gelu": "Gelu (a)",
    "Gelu by tanh": 'Gelu <approximate = "tanh"> (a)',
    "Mish": "Mish (a)",
    "Swish": "Swish <alpha = 1.5> (a)",
}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Pieces of a few elements, blocks of a few rows."""
    monkeypatch.setattr(_pieces, "PIECE", 16)
    monkeypatch.setattr(_pieces, "LEAST", 2)
    monkeypatch.setattr(_rows, "ROWS", 4)
    monkeypatch.setattr(_rows, "SCORES", 4)


def recomputed(text, weights, opset=20):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            graphs, "HEADER", f'<ir_version: 10, opset_import: ["" : {opset}, "test" : 1]>\n'
        )
        model = graphs.parse(text, weights)
    training = gt.grad(model, loss="sum:y")
    again = gt.recompute(training, "sqrt")
    assert any(n.metadata_props["gradtool.stage"] == "recompute" for n in again.model.graph)
    return training, again


def stock(path, **feeds):
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def scans(path):
    return [n.op_type for n in onnx.load(path).graph.node].count("Scan")


def calls(model, op):
    return sum(node.op_type == op for node in model.graph)


def held(model, tmp_path, **feeds):
    """The results of a file with barriers and of one without, both loaded again as planned."""
    found = []
    for barrier in (False, True):
        path = tmp_path / f"{barrier}.onnx"
        gt.save(model, path, barrier=barrier, force=True)
        again = gt.load(path)
        assert gt.plan(again).peak == gt.plan(model).peak
        found.append((path, again, stock(path, **feeds)))
    for name, array in found[0][2].items():
        near = 1e-5 * np.abs(array).max()
        np.testing.assert_allclose(found[1][2][name], array, rtol=1e-4, atol=near)
    return found


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", BODIES)
def test_elementwise_gradients_are_computed_piece_by_piece(name, tmp_path):
    op = BODIES[name].split(" ", 1)[0]
    layers = " ".join(
        f"a{i} = MatMul (b{i}, w) b{i + 1} = {BODIES[name].replace('(a)', f'(a{i})')}"
        for i in range(LAYERS)
    )
    text = f"""g (float[4, 6, 8] b0, float[8, 8] w) => (y) {{
        {layers} y = Tanh (b{LAYERS})
    }}"""
    training, again = recomputed(text, "w", {"Swish": 24, "Mish": 22}.get(op, 20))
    plain, pieced = held(again.model, tmp_path, b0=floats(4, 6, 8))

    assert (scans(plain[0]), scans(pieced[0])) == (0, LAYERS)
    for _, model, _ in (plain, pieced):
        assert calls(model, f"{op}Grad") == LAYERS
    expected = gt.run(training, {"b0": floats(4, 6, 8)}).gradients
    for key, gradient in expected.items():
        near = 1e-5 * np.abs(gradient).max()
        np.testing.assert_allclose(pieced[2][f"{key}_grad"], gradient, rtol=1e-4, atol=near)


@given(st.lists(st.integers(1, 7), min_size=1, max_size=4))
def test_pieces_are_of_one_size_and_no_larger_than_they_may_be(shape):
    total = int(np.prod(shape))
    count = _pieces.pieces(shape)

    assert total % count == 0
    assert count == 1 or total // count <= _pieces.PIECE


def test_open_sizes_are_computed_at_once():
    assert _pieces.pieces(["batch", 64]) == 1
    assert _pieces.pieces([16, 3]) == 3
    assert _pieces.pieces([257]) == 1  # a prime
    assert _pieces.pieces([0, 8]) == 1


@pytest.mark.slow
@pytest.mark.exhaustive
@settings(max_examples=trials(8), deadline=None)
@given(st.integers(1, 2), st.integers(1, 3), st.integers(9, 20), st.integers(5, 9), st.booleans())
def test_attention_has_smaller_blocks_beside_barriers(
    tmp_path_factory, batch, heads, rows, keys, causal
):
    folder = tmp_path_factory.mktemp("attention")
    sizes = [f"float[{batch}, {heads}, {n}, 8]" for n in (rows, keys)]
    layers = " ".join(
        f"q{i} = MatMul (b{i}, w) k{i} = MatMul (k, v) p{i} = Tanh (q{i}) m{i} = Tanh (k{i}) "
        f"a{i} = Attention <is_causal = {int(causal)}> (p{i}, m{i}, m{i}) b{i + 1} = Tanh (a{i})"
        for i in range(LAYERS)
    )
    text = f"""g ({sizes[0]} b0, float[8, 8] w, {sizes[1]} k, float[8, 8] v) => (y) {{
        {layers} y = Tanh (b{LAYERS})
    }}"""
    _, again = recomputed(text, "w v", 23)
    feeds = {"b0": floats(batch, heads, rows, 8), "k": floats(batch, heads, keys, 8, seed=3)}
    plain, pieced = held(again.model, folder, **feeds)

    for _, model, _ in (plain, pieced):
        assert calls(model, "FusedAttentionGrad") == LAYERS
    assert pieced[0].read_bytes() != plain[0].read_bytes()


def test_what_is_written_for_other_runtimes_has_no_loops(tmp_path):
    text = """g (float[4, 6, 8] x, float[8, 8] w, float[8, 8] v) => (y) {
        a = MatMul (x, w) b = Gelu (a) c = MatMul (b, v) d = Gelu (c) e = MatMul (d, v)
        f = Gelu (e) h = MatMul (f, v) i = Gelu (h) y = Tanh (i)
    }"""
    _, again = recomputed(text, "w v")
    path = tmp_path / "p.onnx"
    gt.save(again.model, path, barrier=True, portable=True)

    assert scans(path) == 0
