"""Dropout by a seed and a step: known words, the same masks everywhere, and what it leaves."""

from __future__ import annotations

import json
import math

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from conftest import build, sampled
from graphs import floats, parse

import gradtool as gt
from gradtool.graph.randomness import NUMBERS
from gradtool.ops.composites.calls import inline
from gradtool.ops.random.kernel import WORD, threefry

ONES = (1 << 32) - 1
# Random123, tests/kat_vectors: counter, key, words of threefry2x32 with 20 rounds.
KNOWN = [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((ONES, ONES), (ONES, ONES), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]
TWO = """g (TYPE[N, M] x, TYPE[M] w) => (y, kept) <float r = {RATIO}> {
    h = Mul (x, w) [one] d, kept = Dropout (h, r) t = Tanh (d) [two] y = Dropout (t, r)
}"""


def two(ratio: float, kind: str = "float", width: int = 6, **options) -> gt.TrainingGraph:
    """Two Dropouts, the first with its mask, over rows of `width`."""
    text = TWO.replace("TYPE", kind).replace("M]", f"{width}]").replace("RATIO", repr(ratio))
    model = parse(text)
    return gt.grad(model, loss="sum:y", wrt=["x", "w"], train_mode=True, **options)


def stock(model: ir.Model, feeds, *, optimized: bool) -> dict[str, np.ndarray]:
    ort = pytest.importorskip("onnxruntime")
    model = model.clone()
    inline(model)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_the_words_are_those_of_random123(counter, key, words):
    a, b = (np.full(5, c, WORD) for c in counter)
    threefry(np, key, a, b, np.empty(5, WORD))

    assert {*a.tolist()} == {words[0]}
    assert {*b.tolist()} == {words[1]}


@pytest.mark.parametrize("draw", sampled(range(12)))
def test_stock_onnxruntime_draws_the_same_bits(draw):
    rng = np.random.default_rng(draw)
    rows, width = (int(n) for n in rng.integers(1, 200, 2))
    ratio = [0.0, 1.0, 0.999][draw] if draw < 3 else float(np.float32(rng.random()))
    training = two(ratio, width=width)
    numbers = [rng.integers(-(1 << 40), 1 << 40) for _ in range(2)]
    feeds = {
        "x": floats(rows, width, seed=draw), "w": floats(width, seed=draw + 100),
        "dropout_seed": np.array(numbers[0]), "dropout_step": np.array(numbers[1]),
        "dropout_part": np.array(rng.integers(1 << 20)),
    }  # fmt: skip
    ours = gt.run(training, feeds)

    for optimized in (False, True):
        theirs = stock(training.model, feeds, optimized=optimized)
        np.testing.assert_array_equal(ours.outputs["kept"], theirs["kept"])
        np.testing.assert_array_equal(ours.outputs["y"] == 0, theirs["y"] == 0)
        np.testing.assert_allclose(
            ours.gradients["x"], theirs[training.gradients["x"]], rtol=1e-4, atol=1e-4
        )


def test_masks_keep_their_share_and_differ_between_steps_seeds_and_nodes():
    training = two(0.3, width=500)
    feeds = {"x": np.ones((400, 500), np.float32), "w": np.ones(500, np.float32)}
    found = []
    for seed, step in [(0, 0), (0, 1), (1, 0), (1, 1)]:
        result = gt.run(training, {**feeds, "dropout_seed": seed, "dropout_step": step})
        first = result.outputs["kept"]
        both = result.outputs["y"] != 0
        found += [first, both[first]]
    for kept in found:
        spread = math.sqrt(0.3 * 0.7 / kept.size)
        assert abs(kept.mean() - 0.7) < 5 * spread
    masks = found[::2]
    for i, one in enumerate(masks):
        for other in masks[:i]:
            spread = math.sqrt(0.42 * 0.58 / one.size)
            assert abs((one != other).mean() - 0.42) < 5 * spread


@pytest.mark.exhaustive
def test_the_same_step_draws_the_same_under_every_plan():
    text = """g (float[512, 64] x, float[64, 64] a, float[64, 64] b) => (z) {
        h = MatMul (x, a) d = Dropout (h) t = Tanh (d) e = Dropout (t) k = MatMul (e, b)
        l = Dropout (k) m = Tanh (l) n = MatMul (m, b) o = Dropout (n) y = Tanh (o)
        z = ReduceSum <keepdims = 0> (y)
    }"""
    training = gt.grad(parse(text, "a b"), loss="sum:z", train_mode=True)
    feeds = {"x": 0.1 * floats(512, 64), "dropout_step": 5}
    free = gt.run(training, feeds, kernels="numpy")
    repeated = 0
    for share in (95, 90, 85, 80, 75):
        planned = gt.recompute(training, gt.Budget(f"{share}%"), kernels="numpy")
        model = planned.model
        repeated += sum(
            n.op_type == "DropoutMask" and n.metadata_props["gradtool.stage"] == "recompute"
            for n in model.graph
        )
        under = gt.run(model, feeds, kernels="numpy").gradients
        for name, gradient in free.gradients.items():
            np.testing.assert_array_equal(gradient, under[name])
    assert repeated


@pytest.mark.parametrize("ratio", [0.0, 0.4, 1.0])
def test_gradients_are_those_of_finite_differences_with_the_mask_fixed(ratio):
    training = two(ratio, "double")
    x, w = (floats(*shape, seed=i).astype(np.float64) for i, shape in enumerate([(4, 6), (6,)]))
    feeds = {"x": x, "w": w, "dropout_seed": 3, "dropout_step": 8}
    gradients = gt.run(training, feeds).gradients
    for name in ("x", "w"):
        direction = np.random.default_rng(5).standard_normal(feeds[name].shape)
        ends = [
            gt.run(training, {**feeds, name: feeds[name] + sign * 1e-5 * direction}).outputs["y"]
            for sign in (1, -1)
        ]
        slope = (ends[0].sum() - ends[1].sum()) / 2e-5
        np.testing.assert_allclose((gradients[name] * direction).sum(), slope, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("kind", "dtype"), [("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)]
)
def test_half_precision_has_the_mask_of_single_precision(kind, dtype):
    feeds = {"x": floats(30, 6), "w": np.ones(6, np.float32), "dropout_step": 2}
    single = gt.run(two(0.4), feeds)
    feeds = {n: v.astype(dtype) if n in "xw" else v for n, v in feeds.items()}
    half = gt.run(two(0.4, kind), feeds)

    np.testing.assert_array_equal(single.outputs["kept"], half.outputs["kept"])
    np.testing.assert_allclose(
        single.gradients["x"], half.gradients["x"].astype(np.float32), rtol=0.1, atol=0.05
    )


def test_the_ratio_may_be_an_input():
    text = "g (float[N, 40] x, float r) => (y, m) { y, m = Dropout (x, r) }"
    training = gt.grad(parse(text), loss="sum:y", wrt=["x"], train_mode=True)
    x = np.ones((100, 40), np.float32)
    for ratio in (0.0, 0.25, 0.75):
        feeds = {"x": x, "r": np.array(ratio, np.float32)}
        feeds |= {f"dropout_{name}": np.array(i) for i, name in enumerate(NUMBERS)}
        result = gt.run(training, feeds)
        kept = result.outputs["m"]
        assert abs(kept.mean() - (1 - ratio)) <= 5 * math.sqrt(ratio * (1 - ratio) / x.size)
        np.testing.assert_array_equal(result.gradients["x"], kept / np.float32(1 - ratio))
        np.testing.assert_array_equal(kept, stock(training.model, feeds, optimized=True)["m"])


def test_the_numbers_are_inputs_with_defaults_in_a_file_too(tmp_path):
    training = two(0.5)
    gt.save(training, tmp_path / "step.onnx")
    loaded = gt.load(tmp_path / "step.onnx")
    feeds = {"x": floats(9, 6), "w": floats(6)}

    assert json.loads(loaded.metadata_props["gradtool.draws"]) == {
        "seed": "dropout_seed", "step": "dropout_step", "part": "dropout_part",
    }  # fmt: skip
    plain = gt.run(loaded, feeds).outputs["kept"]
    np.testing.assert_array_equal(
        plain, gt.run(training, {**feeds, "dropout_seed": 0, "dropout_step": 0}).outputs["kept"]
    )
    assert (plain != gt.run(loaded, {**feeds, "dropout_step": 1}).outputs["kept"]).any()


def test_a_session_draws_anew_and_evaluates_without():
    training = two(0.5)
    feeds = {"x": np.ones((20, 6), np.float32), "w": np.ones(6, np.float32)}
    with gt.Session(training) as session:
        masks = [session.step(feeds).outputs["kept"] for _ in range(2)]
        evaluated = session.evaluate(feeds).outputs["y"]
        again = session.step({**feeds, "dropout_step": 0}).outputs["kept"]

    assert (masks[0] != masks[1]).any()
    np.testing.assert_array_equal(masks[0], again)
    np.testing.assert_allclose(evaluated, np.tanh(feeds["x"]), rtol=1e-6)


ATTENTION = """g (float[B, H, S, D] x, float[D, D] w) => (y) <float r = {0.3}> {
    q = MatMul (x, w)
    t = Transpose <perm = [0, 1, 3, 2]> (q)
    s = MatMul (q, t)
    p = Softmax <axis = -1> (s)
    d = Dropout (p, r)
    y = MatMul (d, x)
}"""


@pytest.mark.parametrize("draw", range(4))
def test_dropout_of_attention_runs_alike_in_stock_onnxruntime(draw):
    rng = np.random.default_rng(draw)
    batch, heads, length, depth = (int(n) for n in rng.integers(1, 6, 4))
    training = gt.grad(parse(ATTENTION), loss="sum:y", wrt=["x", "w"], train_mode=True)
    feeds = {
        "x": floats(batch, heads, length, depth), "w": floats(depth, depth, seed=1),
        **{f"dropout_{n}": np.array(rng.integers(100)) for n in NUMBERS},
    }  # fmt: skip
    ours = gt.run(training, feeds)
    theirs = stock(training.model, feeds, optimized=True)

    for name, gradient in ours.gradients.items():
        np.testing.assert_allclose(gradient, theirs[training.gradients[name]], rtol=1e-4, atol=1e-4)


def test_a_second_derivative_keeps_the_mask_of_the_first():
    text = TWO.replace("TYPE", "double").replace("M]", "6]").replace("RATIO", "0.4")
    once = gt.grad(parse(text), loss="sum:y", wrt=["x", "w"], train_mode=True)
    twice = gt.grad(once, loss="sum:w_grad", wrt=["x", "w"])
    x, w = (floats(*shape, seed=i).astype(np.float64) for i, shape in enumerate([(4, 6), (6,)]))
    feeds = {"x": x, "w": w, "dropout_step": 3}
    gradients = gt.run(twice, feeds).gradients
    for name in ("x", "w"):
        direction = np.random.default_rng(5).standard_normal(feeds[name].shape)
        ends = [
            gt.run(once, {**feeds, name: feeds[name] + sign * 1e-5 * direction}).gradients["w"]
            for sign in (1, -1)
        ]
        slope = (ends[0].sum() - ends[1].sum()) / 2e-5
        np.testing.assert_allclose((gradients[name] * direction).sum(), slope, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("parts", [1, 2, 3, 6])
def test_parts_draw_what_the_whole_draws(parts):
    training = two(0.5)
    whole = gt.run(training, {"x": floats(6, 6), "w": floats(6), "dropout_step": 9})
    size = 6 // parts
    kept = [
        gt.run(training, {
            "x": floats(6, 6)[part * size : (part + 1) * size], "w": floats(6),
            "dropout_step": 9, "dropout_part": part,
        }).outputs["kept"]
        for part in range(parts)
    ]  # fmt: skip

    np.testing.assert_array_equal(np.concatenate(kept), whole.outputs["kept"])


def test_nodes_with_one_seed_draw_alike_and_others_do_not():
    text = """g (float[N, 64] x) => (y, a, b, c) {
        p, a = Dropout <seed = 5> (x) q, b = Dropout <seed = 5> (x) r, c = Dropout (x)
        s = Add (p, q) y = Add (s, r)
    }"""
    training = gt.grad(parse(text), loss="sum:y", wrt=["x"], train_mode=True)
    masks = gt.run(training, {"x": np.ones((9, 64), np.float32)}).outputs

    np.testing.assert_array_equal(masks["a"], masks["b"])
    assert (masks["a"] != masks["c"]).any()


def test_the_seed_of_a_run_is_that_of_dropout():
    training = two(0.5)
    feeds = {"x": floats(3, 6), "w": floats(6)}
    kept = gt.run(training, feeds, seed=4).outputs["kept"]

    given = {**feeds, "dropout_seed": 4}
    np.testing.assert_array_equal(kept, gt.run(training, given, seed=9).outputs["kept"])
    assert (kept != gt.run(training, feeds).outputs["kept"]).any()


def test_a_dropout_in_a_branch_is_said_to_be_drawn_by_the_runtime():
    text = """g (float[4] x, bool c) => (y) {
        y = If (c) <
            then_branch = t () => (float[4] a) { a = Dropout (x) },
            else_branch = e () => (float[4] b) { b = Identity (x) }
        >
    }"""
    training = gt.grad(parse(text), loss="sum:y", wrt=["x"], train_mode=True)

    assert any("drawn by the runtime" in line for line in training.warnings)
    assert "gradtool.draws" not in training.model.metadata_props


@pytest.mark.sample(3)
@pytest.mark.parametrize("opset", [7, 10, 12, 13, 17, 18, 21])
def test_files_of_old_opsets_draw_too(opset):
    ratio = "d = Dropout <ratio = 0.25> (x)" if opset < 12 else "d = Dropout (x, r)"
    made = "" if opset < 12 else "<float r = {0.25}>"
    text = f"g (float[N, 40] x) => (float[N, 40] y) {made} {{ {ratio} y = Tanh (d) }}"
    model = build(text, f'<ir_version: 8, opset_import: ["": {opset}]>')
    training = gt.grad(gt.load(model), loss="sum:y", wrt=["x"], train_mode=True)
    x = np.ones((50, 40), np.float32)
    y = gt.run(training, {"x": x}).outputs["y"]

    assert abs((y != 0).mean() - 0.75) < 0.05


def test_a_dropout_in_a_file_keeps_its_meaning_without_train_mode():
    text = TWO.replace("TYPE", "float").replace("M]", "6]").replace("RATIO", "0.5")
    training = gt.grad(parse(text), loss="sum:y", wrt=["x"])

    assert "gradtool.draws" not in training.model.metadata_props
    assert gt.run(training, {"x": floats(3, 6), "w": floats(6)}).outputs["kept"].all()


@pytest.mark.extra
@pytest.mark.filterwarnings("ignore")
def test_a_fresh_export_of_torch_drops_alike_in_stock_onnxruntime(tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    net = torch.nn.Sequential(
        torch.nn.Linear(8, 32), torch.nn.Dropout(0.3), torch.nn.Tanh(), torch.nn.Dropout(0.6)
    ).train()
    torch.onnx.export(net, (torch.ones(5, 8),), tmp_path / "net.onnx", dynamo=True,
                      training=torch.onnx.TrainingMode.TRAINING, verbose=False,
                      external_data=False)  # fmt: skip
    training = gt.grad(gt.load(tmp_path / "net.onnx"), loss="sum", train_mode=True)
    (name,) = (v.name for v in training.model.graph.inputs if not v.name.startswith("dropout"))
    feeds = {name: floats(5, 8)}
    feeds |= {f"dropout_{name}": np.array(4 + i) for i, name in enumerate(NUMBERS)}
    ours = gt.run(training, feeds)
    theirs = stock(training.model, feeds, optimized=True)

    assert sum(n.op_type == "DropoutMask" for n in training.model.graph) == 2
    for value, output in training.gradients.items():
        np.testing.assert_allclose(ours.gradients[value], theirs[output], rtol=1e-4, atol=1e-5)
