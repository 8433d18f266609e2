"""What the README and the pages beside it show is what commands do today."""

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
PAGES = sorted((ROOT / "docs").glob("*.md"))
STEPS, RATE = 20, 1e-3
sys.path.append(str(ROOT / "benchmarks"))


@pytest.mark.exhaustive
def test_the_commands_of_the_tour_print_and_draw_what_it_shows():
    """Else: scripts/examples."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "examples", "--check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")


def lines_of(page):
    """The lines of a page that begin with a command, without their remarks."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^gradtool (.*?)(?: +#.*)?$", text, re.MULTILINE)


def blocks_of(page, language="python"):
    """What a page has in a language."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_three_lines_to_begin_with_run_in_a_clone_as_they_stand(run, tmp_path):
    (tmp_path / "samples").mkdir()
    for suffix in (".onnx", ".npz"):
        sample = CNN.with_suffix(suffix)
        (tmp_path / "samples" / sample.name).write_bytes(sample.read_bytes())
    lines = lines_of(ROOT / "README.md")

    assert len(lines) == 3
    for line in lines:
        outcome = run(*shlex.split(line))
        assert outcome.code == 0, (line, outcome.err)
    assert (tmp_path / "samples" / "cnn.trained.onnx").is_file()


def anchors(page):
    """The places of a page that a link may name."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def test_every_link_leads_somewhere():
    for page in (*ROOT.glob("*.md"), *PAGES, *(ROOT / "samples").rglob("README.md")):
        text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" in link or "node_modules" in str(page):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), (page.name, link)
            assert not anchor or anchor in anchors(target), (page.name, link)


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")

    for page in PAGES:
        assert page.name == "README.md" or f"]({page.name})" in index


@pytest.mark.parametrize("word", ["ladder", "any ONNX runtime", "any runtime"])
def test_no_page_says_what_is_not_so_or_names_what_nobody_sees(word, run):
    said = {page: page.read_text(encoding="utf-8") for page in (ROOT / "README.md", *PAGES)}
    said |= {name: run(*name.split(), "--help").out for name in ("", "report", "recompute", "kit")}

    for where, text in said.items():
        assert word not in re.sub(r"`[^`\n]*`", "", text), where


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
    lines = lines_of(ROOT / "docs" / "commands.md")

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


@pytest.mark.sample(1, 2.5)
@pytest.mark.extra
@pytest.mark.parametrize(
    "optimizer", ["sgd", "momentum", "adam", "adamw", "adagrad", "rmsprop", "adafactor"]
)
def test_the_loop_without_gradtool_trains_as_pytorch_does(optimizer, tmp_path):
    """Without gradtool: a file, stock onnxruntime and what the page shows."""
    pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    step = gt.grad(gt.load(CNN), optimizer=optimizer)
    gt.save(step, tmp_path / "cnn.step.onnx")
    (tmp_path / "cnn.npz").write_bytes(CNN.with_suffix(".npz").read_bytes())
    (code,) = blocks_of(ROOT / "docs" / "commands.md")
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


@pytest.mark.extra
def test_a_module_is_exported_trained_and_has_its_weights_again(tmp_path):
    """As the page about exporting says; the outputs are those of the file that was trained."""
    pytest.importorskip("torch")
    ort = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    text = (ROOT / "docs" / "exporting.md").read_text(encoding="utf-8")
    section = text[text.index("## There and back") :].partition("\n## ")[0]
    there, back = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    (line,) = re.findall(r"^gradtool (.*)$", section, re.MULTILINE)
    program = f"""
import subprocess, sys
{there}
subprocess.run([sys.executable, "-m", "gradtool", *{shlex.split(line)}], check=True)
{back}
np.save("found.npy", model.eval()(x).detach().numpy())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

    found, data = np.load(tmp_path / "found.npy"), np.load(tmp_path / "train.npz")
    session = ort.InferenceSession(tmp_path / "net.trained.onnx")
    (expected,) = session.run(None, {"x": data["x"]})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert (found.argmax(1) == data["labels"]).mean() > 0.8
