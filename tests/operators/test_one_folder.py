"""An operator that is added inside: one folder of `gradtool/ops`, found by every registry."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import build

import gradtool as gt
import gradtool.ops
from gradtool.graph.registry import Registry
from gradtool.ops import costs, gradients, kernels

HEADER = '<ir_version: 10, opset_import: ["" : 20, "com.acme" : 1]>'
FILES = {
    "__init__.py": "",
    "gradient.py": """
from gradtool.ops.gradients import gradient

@gradient("com.acme::Cube")
def cube(op, node, dy):
    x = node.inputs[0]
    return dy * x * x * 3.0
""",
    "kernel.py": """
from gradtool.ops.kernels import kernel

@kernel("com.acme::Cube")
def cube(xp, x, *, out, work):
    xp.multiply(x, x, out=out[0])
    xp.multiply(out[0], x, out=out[0])
""",
    "cost.py": """
from gradtool.ops.costs import each

each({"com.acme::Cube": 2})
""",
}


@pytest.fixture
def cubes(tmp_path, monkeypatch):
    """The family in its folder; the registries forget it afterwards."""
    folder = tmp_path / "cubes"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    registries = gradients.RULES, kernels.KERNELS, costs.COSTS
    before = [dict(each.by_operator()) for each in registries]
    monkeypatch.setattr(gradtool.ops, "__path__", [*gradtool.ops.__path__, str(tmp_path)])
    for part in ("gradient", "kernel", "cost"):
        Registry(
            part, part, function="function"
        ).by_operator()  # which imports the modules of the part
    yield folder
    for each, known in zip(registries, before, strict=True):
        each.by_operator().clear()
        each.by_operator().update(known)


def test_an_operator_is_one_folder(cubes):
    x = np.array([1.0, -2.0, 0.5], np.float32)
    body = "net (float[3] x) => (float[3] y) <float[3] c> { c = com.acme.Cube (x) y = Add (c, w) }"
    model = gt.load(build(body, HEADER, w=np.ones(3, np.float32)))
    training = gt.grad(model, loss="sum:y", wrt=["x"])
    counted = {step.op: step.flops for step in gt.plan(training).program.steps}

    assert np.allclose(gt.run(training, {"x": x}).gradients["x"], 3 * x * x)
    assert counted["com.acme::Cube"] == 2 * x.size
    assert len(list(cubes.glob("*.py"))) == len(FILES)
