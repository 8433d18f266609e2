"""The README shows what the commands print today."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import gradtool as gt

ROOT = Path(__file__).parents[1]
CNN = ROOT / "samples" / "cnn.onnx"
STEPS, RATE = 20, 1e-3
sys.path.append(str(ROOT / "benchmarks"))


def test_the_commands_in_the_readme_print_what_it_shows():
    """Else: scripts/examples."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "examples", "--check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")


def example_model(batch):
    """A model with the names that the example lines speak of."""
    rng = np.random.default_rng(0)
    nodes, weights = [], {}

    def product(x, name, y):
        weights[f"{name}.weight"] = rng.standard_normal((8, 8)).astype(np.float32)
        nodes.append(helper.make_node("MatMul", [x, f"{name}.weight"], [y]))

    product("x", "backbone.0", "backbone.product")
    nodes.append(helper.make_node("Tanh", ["backbone.product"], ["backbone.out"]))
    product("backbone.out", "layer4.0", "layer4.product")
    nodes.append(helper.make_node("Tanh", ["layer4.product"], ["layer4.out"]))
    for output in ("logits", "out", "aux"):
        product("layer4.out", f"head.{output}", output)
    graph = helper.make_graph(
        nodes, "model",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [batch, 8])],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [batch, 8])
         for name in ("logits", "out", "aux")],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_the_example_lines_run_in_sequence_as_they_stand(run, tmp_path):
    onnx.save(example_model(4), tmp_path / "model.onnx")
    for name in ("a.onnx", "b.onnx"):
        onnx.save(example_model("batch"), tmp_path / name)
    np.savez(tmp_path / "batch.npz", x=np.ones((4, 8), np.float32), labels=np.arange(4))
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^gradtool (.*?)(?: +#.*)?$", text, re.MULTILINE)

    assert len(lines) > 10
    for line in lines:
        outcome = run(*shlex.split(line))
        assert outcome.code == 0, (line, outcome.err)


def losses_of_pytorch(optimizer, names):
    import torch
    from torch import optim
    from torch_eager import Eager

    with np.load(CNN.with_suffix(".npz")) as batch:
        eager = Eager(onnx.load(CNN), torch.float32)
        tensors = eager.tensors(dict(batch))
    labels = tensors.pop("labels")
    kind, more = {
        "sgd": (optim.SGD, {}),
        "momentum": (optim.SGD, {"momentum": 0.9}),
        "adam": (optim.Adam, {}),
        "adamw": (optim.AdamW, {}),
        "adagrad": (optim.Adagrad, {}),
        "rmsprop": (optim.RMSprop, {}),
        "adafactor": (optim.Adafactor, {}),
    }[optimizer]
    leaves = [eager.values[n].requires_grad_(True) for n in names]
    stepper = kind(leaves, lr=RATE, **more)
    losses = []
    for _ in range(STEPS):
        stepper.zero_grad()
        loss = torch.nn.functional.cross_entropy(eager(tensors)["logits"], labels)
        loss.backward()
        stepper.step()
        losses.append(loss.item())
    return losses


@pytest.mark.extra
@pytest.mark.parametrize(
    "optimizer", ["sgd", "momentum", "adam", "adamw", "adagrad", "rmsprop", "adafactor"]
)
def test_the_loop_in_the_readme_trains_as_pytorch_does(optimizer, tmp_path):
    """Without gradtool: a file, stock onnxruntime and what the page shows."""
    pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    step = gt.grad(gt.load(CNN), optimizer=optimizer)
    gt.save(step, tmp_path / "cnn.step.onnx")
    (tmp_path / "cnn.npz").write_bytes(CNN.with_suffix(".npz").read_bytes())
    (code,) = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "import gradtool" not in code
    losses = [float(line.split()[1]) for line in done.stdout.splitlines()]

    expected = losses_of_pytorch(optimizer, list(step.updates))
    assert len(losses) == STEPS
    assert losses[-1] < losses[0]
    np.testing.assert_allclose(losses, expected, rtol=1e-3)
