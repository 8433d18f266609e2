"""Every file that gradtool writes of a model, in stock onnxruntime: a part of what
`benchmarks/stock_runtime.py` tries.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import sampled
from graphs import floats, parse
from hypothesis import HealthCheck, Phase, given, settings
from random_graphs import recipes
from stock_files import Subject, rows

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
pytest.importorskip("onnxruntime")

from stock_subjects import Left, of_recipe, subjects

# Queries, keys and values of one product, cut as exporters cut them.
ATTENTION = """g (float[BATCH, 6, 8] x, float[8, 24] w, float[8, 3] v) => (float[BATCH, 6, 3] y) {
    five = Constant <value_ints=[SIZE, 6, 3, 2, 4]> ()
    three = Constant <value_ints=[SIZE, 6, 8]> ()
    b0 = Constant <value_ints=[0]> () b1 = Constant <value_ints=[1]> ()
    b2 = Constant <value_ints=[2]> () b3 = Constant <value_ints=[3]> ()
    qkv = MatMul (x, w)
    cut = Reshape (qkv, five)
    apart = Transpose <perm=[2, 0, 3, 1, 4]> (cut)
    q1 = Slice (apart, b0, b1, b0) q = Squeeze (q1, b0)
    k1 = Slice (apart, b1, b2, b0) k = Squeeze (k1, b0)
    v1 = Slice (apart, b2, b3, b0) u = Squeeze (v1, b0)
    kt = Transpose <perm=[0, 1, 3, 2]> (k)
    s = MatMul (q, kt)
    p = Softmax <axis=-1> (s)
    m = MatMul (p, u)
    back = Transpose <perm=[0, 2, 1, 3]> (m)
    flat = Reshape (back, three)
    y = MatMul (flat, v)
}"""
# A layout by a shape that is computed, before what is computed again.
COMPUTED_SHAPE = """g (float[2, 3, 4] x, float[12, 5] w) => (float[2, 5] y) {
    all = Shape (x)
    b0 = Constant <value_ints=[0]> () b1 = Constant <value_ints=[1]> ()
    rest = Constant <value_ints=[-1]> ()
    n = Slice (all, b0, b1, b0)
    shape = Concat <axis=0> (n, rest)
    flat = Reshape (x, shape)
    h = Tanh (flat)
    m = MatMul (h, w)
    y = Sigmoid (m)
}"""
TEXTS = {
    "attention": (ATTENTION.replace("BATCH", "2").replace("SIZE", "2"), "w v", (2, 6, 8)),
    "attention, any batch": (
        ATTENTION.replace("BATCH", "batch").replace("SIZE", "-1"), "w v", (2, 6, 8),
    ),
    "a computed shape": (COMPUTED_SHAPE, "w", (2, 3, 4)),
}  # fmt: skip
CASES = [
    "cases/Attention(2x3x16,2x5x8,2x5x12)[q_num_heads=4,kv_num_heads=2]@23",
    "cases/Attention(2x4x3x4,2x2x5x4,2x2x5x6,2x1x3x5)[qk_matmul_output_mode=2,softcap=1.5]@23",
    (
        "cases/ai.onnx.ml::LinearClassifier(5x4)[post_transform=SOFTMAX_ZERO,"
        "coefficients=[0.125, 0.25, -0.5, 0.375],intercepts=[0.5],"
        "classlabels_strings=['no', 'yes'],multi_class=1]@20"
    ),
    "cases/Conv(2x3x7x6,4x3x3x3,4)[pads=[1, 1, 1, 1]]@20",
    "transposed/DFT(2x4x2)@20",
    "transposed/Max(2x3,3,1x3)@20",
    "transposed/Pad(2x3x4,2,-,1)@20",
    "transposed/Slice(5x6,2,2,2,2)@20",
    "transposed/ScatterND(3x4,3x1,3x4)[reduction=max]@20",
    (
        "transposed/Resize(1x1x5x7,-,-,2)"
        "[mode=cubic,axes=[2, 3],keep_aspect_ratio_policy=not_smaller]@20"
    ),
]


def check(subject: Subject, folder: Path) -> None:
    with np.errstate(all="ignore"):
        found = list(rows(subject, folder))

    assert found
    assert [f"{r.file}, {r.level}: {r.problem}" for r in found if r.problem] == []


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", TEXTS)
def test_idioms_of_exporters_survive_the_optimiser(name, tmp_path):
    text, weights, shape = TEXTS[name]
    feeds = {"x": floats(*shape)}

    check(Subject(name, parse(text, weights), {"loss": "sum"}, feeds), tmp_path)


def _some(kind: str, every: int) -> list[str]:
    return list(subjects([kind], Path()))[every // 2 :: every]


@pytest.mark.sample(14, 2.5)
@pytest.mark.parametrize("name", sampled([*CASES, *_some("cases", 150), *_some("transposed", 100)]))
def test_files_of_operators_run_at_every_level(name, tmp_path):
    try:
        subject = subjects([name.split("/")[0]], Path())[name]()
    except Left as left:
        pytest.skip(str(left))

    check(subject, tmp_path)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_files_of_a_sample_run_at_every_level(tmp_path):
    check(subjects(["samples"], Path())["samples/cnn"](), tmp_path)


@pytest.mark.exhaustive
@settings(max_examples=3, derandomize=True, database=None, deadline=None,
          phases=[Phase.generate], suppress_health_check=list(HealthCheck))  # fmt: skip
@given(recipe=recipes(most=20))
def test_files_of_random_graphs_run_at_every_level(recipe, tmp_path_factory):
    check(of_recipe("graph", recipe), tmp_path_factory.mktemp("graph"))
