"""Packages that bring rules, kernels, shapes and losses of their own."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from conftest import build, sampled

from gradtool.errors import GradtoolWarning, UsageError
from gradtool.plugins import function_at, load_plugins
from gradtool.text.warned import one_line_warnings

ACME = '<ir_version: 10, opset_import: ["" : 20, "com.acme" : 1]>'
SWISH = "swish (float[N, 3] x) => (float[N, 3] y) { y = com.acme.Swish (x) }"
OPERATORS = '''
from gradtool import composite, gradient, kernel, shape


@shape("com.acme::Swish")
def swish_shape(x):
    return [(x.shape, x.dtype)]


@composite("AcmeSwishGrad", like=0)
def swish_grad(op, x, y, dy):
    """`dx = dy · (σ(x) + y · (1 - σ(x)))`."""
    s = op.Sigmoid(x)
    return dy * (s + y * (1.0 - s))


@gradient("com.acme::Swish")
def swish(op, node, dy):
    """`y = x · σ(x)`."""
    return op.AcmeSwishGrad(node.inputs[0], node.outputs[0], dy)


@kernel("com.acme::Swish")
def swish_kernel(xp, x, *, out, work):
    xp.negative(x, out=out[0])
    xp.exp(out[0], out=out[0])
    xp.add(out[0], 1, out=out[0])
    xp.divide(x, out[0], out=out[0])
'''
LOSSES = """
from gradtool import loss


def cubes(op, y):
    return op.ReduceSum(y * y * y, keepdims=0)


@loss("ranking", labels="classes", said="a ranking")
def ranking(op, y, labels):
    return op.ReduceMean(op.Gather(y, op.reshape(labels, [-1]), axis=1), keepdims=0)


number = 3
"""
POINTS = """
[gradtool.rules]
acme = acme_operators
[gradtool.kernels]
acme = acme_operators
[gradtool.losses]
cubes = acme_losses:cubes
ranking = acme_losses:ranking
ce = acme_losses:cubes
"""


@pytest.fixture
def acme(tmp_path, monkeypatch):
    """A distribution on the path, which is named: two modules and their entry points."""

    def install(points=POINTS):
        path = f"{os.environ.get('PYTHONPATH', '')}{os.pathsep}{tmp_path}"
        monkeypatch.setenv("PYTHONPATH", path.lstrip(os.pathsep))
        (tmp_path / "acme_operators.py").write_text(OPERATORS)
        (tmp_path / "acme_losses.py").write_text(LOSSES)
        folder = tmp_path / "acme-1.0.dist-info"
        folder.mkdir(exist_ok=True)
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(points)

    return install


@pytest.fixture
def swish(model):
    return model(build(SWISH, ACME))


# ---------------------------------------------------------------------- operators and losses


def test_an_operator_of_a_plug_in_is_differentiated_and_run(acme, swish, shell, tmp_path):
    acme()
    x = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
    np.savez(tmp_path / "x.npz", x=x)
    done = shell("run", swish, "--loss", "sum", "--inputs", "x.npz", "--save-grads", "g.npz",
                 "--device", "cpu", "--verify", "finite-diff")  # fmt: skip

    assert done.returncode == 0, done.stderr
    s = 1 / (1 + np.exp(-x))
    with np.load(tmp_path / "g.npz") as found:
        np.testing.assert_allclose(found["x"], s + x * s * (1 - s), rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_a_written_graph_holds_the_operator_and_standard_ones(acme, swish, shell, tmp_path):
    import onnx

    acme()
    assert shell("grad", swish, "--loss", "sum", "-o", "s.onnx").returncode == 0

    assert {n.domain for n in onnx.load(tmp_path / "s.onnx").graph.node} == {"", "com.acme"}


def test_operators_of_plug_ins_are_listed(acme, shell):
    acme()
    rows = json.loads(shell("ops", "--format", "json").stdout)["operators"]
    (row,) = (r for r in rows if r["operator"] == "com.acme::Swish")

    assert (row["gradient"], row["kernel"]) == ("yes", "arena")


@pytest.mark.parametrize(("loss", "labels"), sampled([("ranking:y", 1), ("cubes", 0)]))
def test_a_loss_of_a_plug_in_has_a_name(acme, swish, shell, loss, labels):
    acme()
    done = shell("grad", swish, "--loss", loss, "--format", "json")

    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["labels"]) == labels


@pytest.mark.exhaustive
def test_a_plug_in_takes_no_name_of_ours(acme, swish, shell):
    acme()
    done = shell("grad", swish, "--loss", "ce", "--format", "json")

    assert "softmax cross-entropy" in json.loads(done.stdout)["loss_description"]


# --------------------------------------------------------------------------------- broken ones


BROKEN = [
    ("[gradtool.rules]\nb = nowhere_at_all", "'b' of acme (gradtool.rules) is skipped: Module"),
    (
        "[gradtool.rules]\nb = broken",
        "(gradtool.rules) is skipped: ZeroDivisionError: division",
    ),
    ("[gradtool.kernels]\nb = leaving", "(gradtool.kernels) is skipped: SystemExit: 3"),
    ("[gradtool.losses]\nb = acme_losses:number", "(gradtool.losses) is skipped: TypeError: 3"),
    ("[gradtool.losses]\nb = acme_losses:nothing", "(gradtool.losses) is skipped: Attribute"),
]


@pytest.mark.parametrize(("points", "said"), sampled(BROKEN))
def test_a_broken_plug_in_is_named_once_and_skipped(
    acme, tiny_model, shell, tmp_path, points, said
):
    acme(points)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "leaving.py").write_text("raise SystemExit(3)\n")
    done = shell("run", tiny_model, "--dim", "batch=2", "--loss", "sum:e", "--device", "cpu")

    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.decode().splitlines() if "plug-in" in line]
    assert len(lines) == 1
    assert said in lines[0]


def test_what_a_broken_plug_in_registered_is_taken_back(acme, tmp_path, monkeypatch, capsys):
    acme("[test.group]\na = half_broken\nz = fine_one\n")
    (tmp_path / "half_broken.py").write_text("import store\nstore.ALL['half'] = [1]\n1 / 0\n")
    (tmp_path / "fine_one.py").write_text("import store\nstore.ALL['fine'] = [2]\n")
    (tmp_path / "store.py").write_text("ALL = {'old': [0]}\n")
    monkeypatch.syspath_prepend(tmp_path)
    from importlib import import_module

    registry = import_module("store").ALL
    with one_line_warnings():
        load_plugins("test.group", registry)

    assert registry == {"old": [0], "fine": [2]}
    assert capsys.readouterr().err == (
        "gradtool: plug-in 'a' of acme (test.group) is skipped: "
        "ZeroDivisionError: division by zero\n"
    )


def test_a_name_cannot_command_the_terminal(acme, monkeypatch, tmp_path):
    acme("[test.other]\na\x1b[2J = nowhere_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.warns(GradtoolWarning) as told:
        load_plugins("test.other", {})

    assert "\x1b" not in str(told[0].message)


# ------------------------------------------------------------------------------ paths of functions


def test_a_path_leads_to_a_function_of_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "here_only.py").write_text("def f():\n    return 7\n")
    monkeypatch.chdir(tmp_path)
    found = function_at("here_only:f")

    assert found is not None
    assert found() == 7


@pytest.mark.parametrize(
    "path", ["nowhere_at_all:f", "json:not a name", "..:f", ":f", "json:", "a.b:c"]
)
def test_what_is_no_path_is_none(path):
    assert function_at(path) is None


def test_a_module_without_the_function_is_an_error():
    with pytest.raises(UsageError, match="json has no function 'nothing'"):
        function_at("json:nothing")
