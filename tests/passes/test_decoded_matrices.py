"""Drawn products with, and rows of, constant matrices that DequantizeLinear decodes.

Each is held to float64 of the decoded numbers, on both sets of kernels and in onnxruntime, and its
plan to what a run takes.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx
import pytest
from conftest import sampled
from onnx import helper, numpy_helper
from quantised import exactly

import gradtool as gt
from gradtool.errors import GradtoolError

EIGHT, FOUR = ("int8", "uint8"), ("int4", "uint4")
SCALES = ("tensor", "rows", "columns", "blocks along 0", "blocks along 1")
LEFT = {False: ("blocks along 0",), True: ("blocks along 0", "columns")}
TOLERANCE = 1e-5  # of the largest number


@dataclass(frozen=True)
class Drawn:
    """A matrix [a, b] of codes, its operands in a file, and its numbers."""

    held: dict[str, np.ndarray]
    attributes: str
    exact: np.ndarray

    @property
    def call(self):
        """Its DequantizeLinear."""
        return f"w = DequantizeLinear <{self.attributes}> ({', '.join(self.held)})"


def matrix(rng, kind, scales, shape, *, zero=True, dtype=np.float32):
    """A drawn matrix whose scales are one, or by axis, or by block."""
    coded = np.dtype(getattr(ml_dtypes, kind, kind))
    info = ml_dtypes.iinfo(coded)
    axis = int(scales in ("columns", "blocks along 1"))
    size = int(rng.integers(1, shape[axis] + 1)) if "blocks" in scales else 0
    if size and coded.itemsize == 1 and kind in FOUR:
        size += size % 2
    by = {"tensor": (), "rows": shape[:1], "columns": shape[1:]}.get(scales)
    if by is None:
        by = tuple(-(-n // size) if a == axis else n for a, n in enumerate(shape))
    q, z = (rng.integers(info.min, int(info.max) + 1, s).astype(coded) for s in (shape, by))
    s = rng.uniform(0.01, 0.1, by).astype(dtype)

    def whole(array):
        array = array.astype(float)
        if size:
            return array.repeat(size, axis).take(range(shape[axis]), axis)
        return array[:, None] if scales == "rows" else array

    exact = (q.astype(float) - (whole(z) if zero else 0)) * whole(s)
    held = {"q": q, "s": s, **({"z": z} if zero else {})}
    attributes = f"axis = {axis}" + (f", block_size = {size}" if size else "")
    return Drawn(held, attributes, exact)


def model(inputs, outputs, text, opset, **held):
    made = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["":{opset}]> g (float[1] x) => (float[1] y) {{ {text} }}'
    )
    del made.graph.input[:], made.graph.output[:]
    for place, values in ((made.graph.input, inputs), (made.graph.output, outputs)):
        place.extend(helper.make_tensor_value_info(n, t, s) for n, (t, s) in values.items())
    made.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in held.items())
    return made


def hold(graph, feeds, expected):
    """What a graph computes, against float64, and what it takes, against its plan."""
    pytest.importorskip("onnxruntime")
    for how in ({"kernels": "numpy"}, {}, {"engine": "ort"}):
        found = gt.run(graph, feeds, **how)
        for name, exact in expected.items():
            mine = found.gradients[name[1:]] if name.startswith("d") else found.outputs[name]
            assert np.abs(mine - exact).max() <= TOLERANCE * np.abs(exact).max(), (how, name)
    for kernels in ("numpy", "native"):
        done = gt.run(graph, feeds, kernels=kernels, measure=True, check_arena=True)
        assert done.measurement.planned >= done.plan.peak >= done.measurement.high_water


def operators(graph):
    return Counter(node.op_type for node in graph.model.graph)


def drawn_product(rng, kind, scales):
    """A model of one product, its weight, and whether it is transposed."""
    k, n = (int(v) for v in rng.integers(1, 60, 2))
    gemm, turned = rng.random(2) < 0.5
    shape = (n, k) if turned else (k, n)
    w = matrix(rng, kind, scales, shape, zero=bool(rng.random() < 0.7))
    lead = (int(rng.integers(1, 9)),) if gemm else tuple(rng.integers(1, 5, rng.integers(0, 4)))
    lead = tuple(map(int, lead))
    held, said, text = dict(w.held), {}, "y = MatMul (x, w)"
    if turned and not gemm:
        text = "t = Transpose <perm = [1, 0]> (w) y = MatMul (x, t)"
    x_shape = (*lead, k)
    if gemm:
        said = {"transB": int(turned), "alpha": 0.5, "beta": float(rng.choice([1.0, 2.0]))}
        if rng.random() < 0.3:
            said["transA"], x_shape = 1, x_shape[::-1]
        held["c"] = rng.normal(size=n).astype(np.float32)
        attributes = ", ".join(f"{key} = {value}" for key, value in said.items())
        text = f"y = Gemm <{attributes}> (x, w, c)"
    opset = 21 if kind in FOUR or "blocks" in scales else int(rng.choice([18, 21]))
    made = model(
        {"x": (1, x_shape)}, {"y": (1, (*lead, n))}, f"{w.call} {text}", opset, **held
    )  # fmt: skip
    return made, x_shape, w.exact.T if turned else w.exact, said, held.get("c", 0.0)


@pytest.mark.parametrize(
    ("kind", "scales", "seed"),
    sampled(itertools.product((*EIGHT, *FOUR), SCALES, range(4)), by=lambda c: c[:1]),
)
def test_a_product_decodes_no_whole_matrix_and_is_that_of_float64(kind, scales, seed):
    rng = np.random.default_rng([seed, *f"{kind} {scales}".encode()])
    made, shape, w, said, added = drawn_product(rng, kind, scales)
    x = rng.normal(size=shape).astype(np.float32)
    graph = gt.grad(gt.load(made), loss="sum:y", input_grad=["x"], wrt=[])

    assert "DequantizeLinear" not in operators(graph)
    assert operators(graph)["QuantizedMatMul"] == 2
    alpha, across = said.get("alpha", 1.0), bool(said.get("transA"))
    y = alpha * (x.T if across else x).astype(float) @ w + said.get("beta", 1.0) * added
    dx = alpha * np.broadcast_to(w.sum(1), (*y.shape[:-1], len(w)))
    hold(graph, {"x": x}, {"y": y, "dx": dx.T if across else dx})


@pytest.mark.parametrize(
    ("kind", "scales", "seed"),
    sampled(itertools.product((*EIGHT, *FOUR), SCALES, range(2)), by=lambda c: c[:1]),
)
def test_rows_of_a_table_are_decoded_after_they_are_looked_up(kind, scales, seed):
    rng = np.random.default_rng([seed, *f"{kind} {scales}".encode()])
    shape = tuple(int(v) for v in rng.integers(2, 50, 2))
    tied = bool(rng.random() < 0.5)
    table = matrix(rng, kind, scales, shape, zero=bool(rng.random() < 0.7))
    sizes = tuple(int(v) for v in rng.integers(1, 4, rng.integers(0, 3)))
    indices = rng.integers(-shape[0], shape[0], sizes)
    head = "t = Transpose <perm = [1, 0]> (w) y = MatMul (h, t)" if tied else "y = Identity (h)"
    width = shape[0] if tied else shape[1]
    made = model(
        {"i": (7, sizes), "g": (1, shape[1:])}, {"y": (1, (*sizes, width))},
        f"{table.call} e = Gather (w, i) h = Mul (e, g) {head}", 21, **table.held,
    )  # fmt: skip
    g = rng.normal(size=shape[1]).astype(np.float32)
    graph = gt.grad(gt.load(made), loss="sum:y", input_grad=["g"], wrt=[])
    w = table.exact
    rows = w[indices]

    whole = [n for n in graph.model.graph if n.op_type == "DequantizeLinear"
             and n.inputs[0].name == "q"]  # fmt: skip
    assert bool(whole) == (scales in LEFT[kind in FOUR])
    y = rows * g @ w.T if tied else rows * g
    dg = rows * w.sum(0) if tied else rows
    hold(graph, {"i": indices, "g": g}, {"y": y, "dg": dg.reshape(-1, shape[1]).sum(0)})


@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("kind", EIGHT)
def test_a_product_of_integers_decodes_no_whole_weight(kind, per_column):
    rng = np.random.default_rng(per_column)
    w = matrix(rng, kind, "columns" if per_column else "tensor", (48, 20))
    made = model(
        {"x": (1, (3, 5, 48))}, {"y": (1, (3, 5, 20))},
        """a, t, u = DynamicQuantizeLinear (x) p = MatMulInteger (a, q, u, z)
        f = Cast <to = 1> (p) m = Mul (t, s) y = Mul (f, m)""", 18, **w.held,
    )  # fmt: skip
    x = rng.integers(-127, 129, (3, 5, 48)).astype(np.float32) / 64  # whole steps of its range
    x.flat[:2] = -127 / 64, 2
    graph = gt.grad(gt.load(made), loss="sum:y", input_grad=["x"], wrt=[])

    assert operators(graph)["QuantizedMatMul"] == 2
    assert not {"Sub", "MatMul", "Gemm", "DequantizeLinear"} & {*operators(graph)}
    dx = np.broadcast_to(w.exact.sum(1), x.shape)
    hold(graph, {"x": x}, {"y": x.astype(float) @ w.exact, "dx": dx})


def test_scales_that_are_trained_keep_their_operator():
    w = matrix(np.random.default_rng(0), "int8", "columns", (6, 4))
    made = model(
        {"x": (1, (2, 6))}, {"y": (1, (2, 4))}, f"{w.call} y = MatMul (x, w)", 18, **w.held
    )
    graph = gt.grad(gt.load(made), loss="sum:y", wrt=["s"])

    assert operators(graph)["DequantizeLinear"] == 1
    x = np.ones((2, 6), np.float32)
    np.testing.assert_allclose(
        gt.run(graph, {"x": x}).gradients["s"], 2 * (w.exact / w.held["s"]).sum(0), rtol=1e-5
    )


def test_codes_of_bytes_in_rows_stay_where_they_lie():
    w = matrix(np.random.default_rng(0), "uint8", "rows", (8, 32))
    made = model(
        {"x": (1, (2, 32))}, {"y": (1, (2, 8))}, f"{w.call} y = Gemm <transB = 1> (x, w)", 18,
        **w.held,
    )  # fmt: skip
    graph = gt.grad(gt.load(made), loss="sum:y", input_grad=["x"], wrt=[])

    assert "q" in graph.model.graph.initializers


@pytest.mark.parametrize("scales", ["columns", "rows", "tensor"])
def test_a_written_product_has_standard_operators_alone_and_is_read_back(scales, tmp_path):
    w = matrix(np.random.default_rng(0), "int8", scales, (24, 10))
    made = model(
        {"x": (1, (2, 24))}, {"y": (1, (2, 10))}, f"{w.call} y = MatMul (x, w)", 18, **w.held
    )
    graph = gt.grad(gt.load(made), loss="sum:y", input_grad=["x"], wrt=[])
    path, _ = gt.save(graph, tmp_path / "grad.onnx")

    written = onnx.load(path)
    assert {node.domain for node in written.graph.node} == {""}
    assert [n.op_type for n in gt.load(path).graph].count("QuantizedMatMul") == 2


@pytest.mark.sample(2)
@pytest.mark.parametrize("scales", ["columns", "rows", "tensor"])
@pytest.mark.parametrize("kind", EIGHT)
def test_adapters_beside_a_matrix_of_bytes_run_in_onnxruntime(kind, scales, tmp_path):
    pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(1)
    w = matrix(rng, kind, scales, (24, 10))
    made = model(
        {"x": (1, ("n", 24))}, {"y": (1, ("n", 10))}, f"{w.call} y = MatMul (x, w)", 18, **w.held
    )
    onnx.save(made, tmp_path / "net.onnx")
    x = rng.normal(size=(16, 24)).astype(np.float32)
    data = {"x": x, "labels": rng.normal(size=(16, 10)).astype(np.float32)}
    options = {"lora": 2, "batch": 8, "steps": 6, "lr": 0.1, "optimizer": "adam", "loss": "mse:y"}
    with gt.Trainer(tmp_path / "net.onnx", **options) as trainer:
        trainer.fit(data)
        trained = trainer.session.evaluate(data).outputs["y"]
        (path, _), (adapter, _) = trainer.save_adapter(tmp_path / "net.lora.onnx")

    found = exactly(path, {"x": x}, adapter)
    np.testing.assert_allclose(found, trained, rtol=1e-4, atol=1e-4)
    assert np.abs(trained - x @ w.exact).max() > 1e-2


def test_a_product_of_integers_has_an_adapter():
    w = matrix(np.random.default_rng(0), "int8", "tensor", (6, 4))
    made = model(
        {"x": (1, (2, 6))}, {"y": (1, (2, 4))},
        """a, t, u = DynamicQuantizeLinear (x) p = MatMulInteger (a, q, u, z)
        f = Cast <to = 1> (p) m = Mul (t, s) y = Mul (f, m)""", 18, **w.held,
    )  # fmt: skip

    found = gt.grad(gt.load(made), loss="mse:y", lora=2, lora_target=["q"])

    assert set(found.gradients) == {"q.lora_A", "q.lora_B"}


@pytest.mark.parametrize(
    ("scale", "zero", "attributes"),
    [
        ((4,), (3,), "axis = 1"),
        ((6, 4), (6, 4), "axis = 1"),
        ((1, 1), (1, 1), "axis = 1"),
        ((4, 2), (4, 2), "axis = 1, block_size = 2"),
        ((6, 2), (6, 1), "axis = 1, block_size = 2"),
        ((4,), (4,), "axis = 1, block_size = -2"),
    ],
)
def test_scales_that_do_not_fit_are_refused(scale, zero, attributes):
    held = {"q": np.ones((6, 4), np.int8), "s": np.ones(scale, np.float32)}
    text = f"w = DequantizeLinear <{attributes}> (q, s, z) y = MatMul (x, w)"
    made = model(
        {"x": (1, (2, 6))}, {"y": (1, (2, 4))}, text, 21, **held, z=np.zeros(zero, np.int8)
    )

    graph = gt.grad(gt.load(made), loss="sum:y", input_grad=["x"], wrt=[])

    with pytest.raises(GradtoolError, match="DequantizeLinear"):
        gt.run(graph, {"x": np.ones((2, 6), np.float32)})
