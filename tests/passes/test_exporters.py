"""What exporters do to a model that is to be trained: said where it holds, and nowhere else."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import parse

import gradtool as gt
from gradtool.passes.exporters import APART, untied
from gradtool.passes.provenance import FOLDED as NOTE

PAGE = Path(__file__).parents[2] / "docs" / "exporting.md"
CONV = """g (float[2, 2, 5, 5] x, float[3, 2, 1, 1] w, float[3, 1, 1] b) => (y) {
    [first] h = Conv (x, w) [second] y = Add (h, b)
}"""
MATMUL = """g (float[2, 3] x, float[3, 4] w, float[4] b) => (y) {
    [product] h = MatMul (x, w) [sum] y = Add (h, b)
}"""


def said(text, **names):
    """The warnings about a model whose tensors w and b have other names."""
    model = parse(text, "w b")
    model.graph[0].name = "/q/MatMul" if text is MATMUL else model.graph[0].name
    for old, new in names.items():
        model.graph.initializers[old].name = new
    return gt.grad(model, loss="sum:y").warnings


def test_a_parameter_that_was_folded_apart_is_named():
    model = parse(
        """g (float[2, 3] x, float[2] s) => (float loss)
        <float[3, 3] w = {1,2,3,4,5,6,7,8,9}, float[3, 3] t = {1,4,7,2,5,8,3,6,9},
         float[3] a = {1,2,3}, float[3] b = {1,4,9}, float[3] alone = {1,1,1}>
        { p = MatMul (x, w) q = MatMul (p, t) r = Mul (q, a) u = Mul (r, b) v = Mul (u, alone)
          loss = ReduceSum <keepdims = 0> (v) }"""
    )
    for name, origin in (("t", "w"), ("a", "gone"), ("b", "gone"), ("alone", "other")):
        model.graph.initializers[name].metadata_props[NOTE] = f"['{origin}', 'val_17', 'zeros']"

    assert untied(model.graph) == [
        f"t, w were one parameter, w, until the exporter folded it; {APART}",
        f"a, b were one parameter, gone, until the exporter folded it; {APART}",
    ]


@pytest.mark.parametrize(
    ("names", "where"),
    [
        ({"w": "m/c1/convolution/merged_input:0"}, "first"),
        ({"b": "m/b1/batchnorm/sub:0"}, "second"),
        ({"w": "onnx::Conv_30"}, "first"),
        ({"w": "onnx::ConvTranspose_30"}, "first"),
    ],
)
def test_a_fold_is_told_by_the_name_that_the_exporter_gave(names, where):
    (warning,) = said(CONV, **names)

    assert warning.startswith(f"BatchNormalization was folded into {where} by the exporter")
    assert "Dropout, if there was any, was left out as well" in warning
    remedy = "docs/exporting.md" if "onnx::" not in str(names) else "optimize=False"
    assert remedy in warning


@pytest.mark.parametrize(
    "name", ["merged_input", "m/batchnorm", "conv.weight", "Conv_30", "onnx::Conv"]
)
def test_other_names_tell_of_none(name):
    assert said(CONV, w=name) == ()


def test_weights_that_torchscript_transposed_are_named_with_their_layer():
    (warning,) = said(MATMUL, w="onnx::MatMul_288", b="onnx::Add_3")

    assert warning.startswith("1 weight transposed by TorchScript")
    assert "onnx::MatMul_288 (/q): --wrt" in warning
    assert "dynamo=True" in warning
    assert said(MATMUL, b="onnx::Add_3") == ()
    assert said(MATMUL, w="onnx::Mul_288") == ()  # which is no weight of a product
    assert said(CONV, w="onnx::MatMul_288") == ()


# ------------------------------------------------------------------------------- real exports


def exports():
    """The modules of the page, and how each form of export writes one."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    nn = torch.nn
    torch.manual_seed(0)
    normed = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, bias=False),
        nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3), nn.Linear(128, 4),
    )  # fmt: skip
    plain = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4))
    layered = nn.Sequential(
        nn.Linear(6, 6), nn.LayerNorm(6), nn.Dropout(0.1), nn.Linear(6, 6), nn.LayerNorm(6)
    )
    image, rows = torch.randn(2, 3, 8, 8), torch.randn(2, 5, 6)
    modules = {"normed": (normed, image), "plain": (plain, image), "layered": (layered, rows)}
    kinds = {
        "dynamo": {"dynamo": True, "external_data": False, "verbose": False},
        "script": {"dynamo": False},
    }
    return torch, modules, kinds


FOLDED, SHARED, TRANSPOSED = "was folded into", "read by several layers", "transposed by"
EXPECTED = {
    ("normed", "dynamo"): (FOLDED,), ("normed", "script"): (FOLDED,),
    ("plain", "dynamo"): (), ("plain", "script"): (),
    ("layered", "dynamo"): (SHARED,), ("layered", "script"): (SHARED, TRANSPOSED),
}  # fmt: skip


@pytest.mark.extra
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "kind"), EXPECTED)
def test_what_exports_of_pytorch_have_gone_through_is_said(name, kind, tmp_path):
    torch, modules, kinds = exports()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    module, x = modules[name]
    torch.onnx.export(module.eval(), (x,), tmp_path / "m.onnx", **kinds[kind])
    warnings = gt.grad(gt.load(tmp_path / "m.onnx"), loss="mean").warnings

    for words in (FOLDED, SHARED, TRANSPOSED):
        assert any(words in each for each in warnings) == (words in EXPECTED[name, kind]), words


def blocks(heading):
    section = PAGE.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    return [part.split("```")[0] for part in section.split("```python\n")[1:]]


@pytest.mark.extra
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("block", [0, 1])
@pytest.mark.parametrize("name", ["normed", "layered"])
def test_what_the_page_asks_for_brings_all_parameters(name, block, tmp_path, monkeypatch):
    torch, modules, _ = exports()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    monkeypatch.chdir(tmp_path)
    module, x = modules[name]
    names = {"torch": torch, "model": module.train(), "x": x}
    exec(compile(blocks("PyTorch")[block], str(PAGE), "exec"), names)  # noqa: S102
    training = gt.grad(gt.load("model.onnx"), loss="mean", train_mode=True)
    written = onnx.load("model.onnx")

    assert training.gradients.keys() == {n for n, _ in module.named_parameters()}
    assert "Dropout" in {node.op_type for node in written.graph.node}
    for words in (FOLDED, SHARED, TRANSPOSED):
        assert not any(words in warning for warning in training.warnings)


@pytest.mark.extra
@pytest.mark.filterwarnings("ignore")
def test_what_scikit_learn_fitted_is_trained():
    skl2onnx = pytest.importorskip("skl2onnx")
    networks = pytest.importorskip("sklearn.neural_network")
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((40, 6)), np.arange(40) % 3
    names = {
        "skl2onnx": skl2onnx, "np": np, "x": x,
        "classifier": networks.MLPClassifier((5,), max_iter=3).fit(x, y),
    }  # fmt: skip
    (code,) = blocks("scikit-learn")
    exec(compile(code, str(PAGE), "exec"), names)  # noqa: S102
    training = gt.grad(gt.load(names["model"].SerializeToString()))

    assert len(training.gradients) == 4
    assert "Softmax left out" in training.loss_said
