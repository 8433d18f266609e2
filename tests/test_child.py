"""No file of the current folder, or beside a model, is imported by any process of gradtool."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import numpy as np
import pytest
from conftest import TINY, build, sampled, tiny_weights
from shadows import PYTHONS_OWN, ROOT, Shadows

from gradtool import child

OLD = """old (float[batch, 8] x) => (float loss) {
    h = MatMul (x, w)
    s = Add (h, b)
    e = Exp (s)
    loss = ReduceSum <keepdims = 0> (e)
}"""
CASES = "".join(
    f'[[case]]\nname = "{name}"\nmodel = "tiny.onnx"\nbatch = {batch}\n'
    for name, batch in (("one", 2), ("two", 3))
)
RUN = ("run", "tiny.onnx", "--batch", "2")
TRAIN = ("train", "tiny.onnx", "--data", "data.npz", "--batch", "2", "--steps", "2",
         "--optimizer", "sgd", "--force")  # fmt: skip
COMMANDS = {
    "the cases of check": ("check", "--allow-new", "--no-cache", "--jobs", "2"),
    "another engine": (*RUN, "--engine", "ort", "--measure"),
    "the check by another engine": (*RUN, "--verify", "ort"),
    "an old model": ("grad", "old.onnx", "--force"),
    "the graph": ("grad", "tiny.onnx", "--force"),
    "mirroring": ("mirror", "tiny.onnx", "--batch", "2", "--report"),
    "recomputing": ("recompute", "tiny.onnx", "--batch", "2", "--budget", "min", "--force"),
    "a kit": ("kit", "tiny.onnx", "--optimizer", "sgd", "-o", "kit"),
    "a page": ("report", "tiny.onnx", "--batch", "2", "--html", "page.html", "--force"),
    "training": TRAIN,
    "the machine": ("doctor",),
    "the operators": ("ops", "tiny.onnx"),
    "a configuration": ("init", "tiny.onnx", "--force"),
    "completion": ("completion", "bash"),
}
STARTS = {"the cases of check", "another engine"}  # one of each way to start a child


def hostile(tmp_path: Path, without: tuple[str, ...] = ()) -> Shadows:
    """A folder with two models, data and a configuration among shadows."""
    found = Shadows.made(tmp_path / "cloned", tmp_path / "imported", without)
    tiny = build(TINY, **tiny_weights())
    (found.folder / "tiny.onnx").write_bytes(tiny.SerializeToString())
    old = build(OLD, '<ir_version: 8, opset_import: ["" : 13]>', **tiny_weights())
    (found.folder / "old.onnx").write_bytes(old.SerializeToString())
    np.savez(found.folder / "data.npz", x=np.ones((4, 8), np.float32))
    (found.folder / "gradtool.toml").write_text(CASES)
    return found


@pytest.mark.sample(3, 3)
@pytest.mark.parametrize(
    "what",
    [pytest.param(c, marks=() if c in STARTS else pytest.mark.exhaustive) for c in COMMANDS],
)
def test_no_command_imports_what_lies_in_the_folder(what, tmp_path):
    folder = hostile(tmp_path)
    done = folder.gradtool(*COMMANDS[what])

    assert folder.imported == []
    assert (done.returncode, "plug-in" in done.stderr) == (0, False), done.stderr


@pytest.mark.extra
def test_no_rank_imports_what_lies_in_the_folder(tmp_path):
    pytest.importorskip("mpi4py.MPI", exc_type=ImportError)
    folder = hostile(tmp_path)
    done = folder.gradtool(*TRAIN, "--ranks", "2")

    assert folder.imported == []
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("what", COMMANDS)
def test_neither_does_a_module_that_python_runs(what, tmp_path):
    """`python -m` puts the folder into the path: of it, Python finds gradtool itself alone."""
    folder = hostile(tmp_path, ("gradtool",))
    done = folder.gradtool(*COMMANDS[what], module=True)

    assert folder.imported == []
    assert done.returncode == 0, done.stderr


@pytest.mark.sample(1, 3)
@pytest.mark.exhaustive
@pytest.mark.parametrize("entries", sampled(["{root}:", ":{root}", "{root}::{root}"], 3))
def test_an_empty_entry_of_the_path_names_no_folder(entries, tmp_path):
    folder = hostile(tmp_path, (*PYTHONS_OWN, "gradtool"))
    path = entries.format(root=ROOT).replace(":", os.pathsep)
    done = folder.gradtool(*COMMANDS["another engine"], PYTHONPATH=path)

    assert folder.imported == []
    assert done.returncode == 0, done.stderr


@pytest.mark.exhaustive
def test_a_folder_that_the_path_names_is_searched(tmp_path):
    (tmp_path / "here.py").write_text("def f(op, y):\n    return op.ReduceSum(y, keepdims=0)\n")
    folder = Shadows(tmp_path, tmp_path / "imported")
    (tmp_path / "tiny.onnx").write_bytes(build(TINY, **tiny_weights()).SerializeToString())
    path = os.pathsep.join([str(ROOT), "", str(tmp_path)])
    done = folder.gradtool("grad", "tiny.onnx", "--loss", "here:f:e", "--force", PYTHONPATH=path)

    assert done.returncode == 0, done.stderr


# ----------------------------------------------------------------------------- how they start


@pytest.mark.parametrize(
    ("given", "kept"), [(None, None), ("", ""), ("a", "a"), ("a::b:", "a:b"), (":", "")]
)
def test_the_path_of_a_child_has_no_empty_entries(given, kept, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if given is not None:
        monkeypatch.setenv("PYTHONPATH", given.replace(":", os.pathsep))
    found = child.environment(MORE="x")

    assert found.get("PYTHONPATH") == (kept.replace(":", os.pathsep) if kept else kept)
    assert (found["PYTHONSAFEPATH"], found["MORE"]) == ("1", "x")


def test_an_environment_is_put_back(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"a{os.pathsep}")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    before = dict(os.environ)
    with child.safe_environment():
        assert (os.environ["PYTHONPATH"], os.environ["PYTHONSAFEPATH"]) == ("a", "1")

    assert dict(os.environ) == before


def test_python_is_started_in_one_place():
    """Nothing else of gradtool starts an interpreter, or pools of them, or changes the path."""
    asked = {"sys.executable", "sys.path", "multiprocessing.get_context", "safe_environment"}
    found = {}
    for path in sorted((ROOT / "gradtool").rglob("*.py")):
        names = {ast.unparse(n) for n in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                 if isinstance(n, ast.Attribute)}  # fmt: skip
        used = sorted(asked & {name.removeprefix("child.") for name in names})
        if used:
            found[path.relative_to(ROOT / "gradtool").as_posix()] = used

    assert found == {
        "__init__.py": ["sys.path"],
        "check/jobs.py": ["multiprocessing.get_context", "safe_environment"],
        "child.py": ["sys.executable", "sys.path"],
        "plugins.py": ["sys.path"],
        "ranks/launch.py": ["sys.executable"],  # beside which `mpiexec` may lie
        "reports/system.py": ["sys.executable"],  # which it prints
    }
