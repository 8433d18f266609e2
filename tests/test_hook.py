"""The hook, run by pre-commit itself; in an environment made by it where that is slow."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from repository import Repository, environment, network

ROOT = Path(__file__).parents[1]
MANIFEST = ROOT / ".pre-commit-hooks.yaml"
(HOOK,) = yaml.safe_load(MANIFEST.read_text(encoding="utf-8"))
SHIPPED = ("gradtool", "pyproject.toml", "README.md", "LICENSE", MANIFEST.name)
GRADTOOL = '#!/bin/sh\nexec "{python}" -m gradtool "$@"\n'

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


@pytest.fixture
def repository(tmp_path) -> Repository:
    """A repository of a model with a baseline, committed."""
    made = Repository.made(tmp_path / "repository")
    made.write("net.onnx", network(16))
    (made.path / "notes.txt").write_text("of no interest")
    assert made.gradtool("init", "--dim", "batch=8192").returncode == 0
    made.commit("Watch the memory of training")
    return made


@pytest.fixture
def hook(repository, tmp_path):
    """Runs pre-commit on what is staged; `gradtool` is this one, found on the path."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "gradtool").write_text(GRADTOOL.format(python=sys.executable))
    (programs / "gradtool").chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    configure(repository, {"repo": "local", "hooks": [{**HOOK, "language": "system"}]})

    def run():
        return pre_commit(repository, tmp_path, "run", PATH=path)

    return run


def configure(repository, *repositories):
    text = yaml.safe_dump({"repos": list(repositories)})
    (repository.path / ".pre-commit-config.yaml").write_text(text)
    repository.commit("Check before each commit")


def pre_commit(repository, tmp_path, *arguments, **more):
    return subprocess.run(
        [sys.executable, "-m", "pre_commit", *arguments],
        cwd=repository.path,
        env=environment(PRE_COMMIT_HOME=str(tmp_path / "cache"), PRE_COMMIT_COLOR="never", **more),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def remark(repository):
    """Change the configuration to one that means the same."""
    path = repository.path / "gradtool.toml"
    path.write_text(f"{path.read_text()}# a remark\n")


def test_the_manifest_is_one(repository, tmp_path):
    done = pre_commit(repository, tmp_path, "validate-manifest", str(MANIFEST))

    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("file", "matters"),
    [
        ("models/net.onnx", True),
        ("net.onnx.data", True),
        ("net.onnx.0123456789abcdef.data", True),
        ("gradtool.toml", True),
        ("sub/pyproject.toml", True),
        ("gradtool-baseline/net.json", True),
        ("src/net.py", False),
        ("notgradtool.toml", False),
    ],
)
def test_the_hook_runs_for_models_configurations_and_baselines(file, matters):
    assert bool(re.search(HOOK["files"], file)) == matters


@pytest.mark.exhaustive
def test_a_model_that_is_as_it_was_passes(repository, hook):
    repository.write("net.onnx", network(16, layers=3))
    remark(repository)
    repository.git("add", "--all")

    done = hook()

    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"gradtool check\.+Passed\n", done.stdout)


def test_a_model_that_grew_fails_and_is_named(repository, hook):
    repository.write("net.onnx", network(64))
    repository.git("add", "--all")

    done = hook()

    assert done.returncode == 1
    assert re.search(r"^gradtool check\.+Failed$", done.stdout, re.MULTILINE)
    assert "net: peak " in done.stdout
    assert "GREW" in done.stdout


@pytest.mark.exhaustive
def test_a_commit_of_nothing_that_matters_plans_nothing(repository, hook):
    (repository.path / "notes.txt").write_text("of no interest either")
    repository.git("add", "--all")

    done = hook()

    assert done.returncode == 0
    assert "(no files to check)Skipped" in done.stdout


@pytest.mark.exhaustive
def test_what_is_not_staged_does_not_count(repository, hook):
    remark(repository)
    repository.git("add", "gradtool.toml")
    repository.write("net.onnx", network(64))

    done = hook()

    assert done.returncode == 0
    assert "Unstaged files detected" in done.stdout
    assert (repository.path / "net.onnx").read_bytes() == network(64).SerializeToString()


@pytest.mark.slow
def test_pre_commit_makes_an_environment_and_runs_the_hook_in_it(repository, tmp_path):
    ours = Repository.made(tmp_path / "gradtool")
    for name in SHIPPED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, ours.path / name)
    revision = ours.commit("A release")
    url = f"file://{ours.path}"
    configure(repository, {"repo": url, "rev": revision, "hooks": [{"id": "gradtool-check"}]})
    repository.write("net.onnx", network(64))
    repository.git("add", "--all")

    made = pre_commit(repository, tmp_path, "install-hooks")
    if made.returncode:
        pytest.skip(f"packages cannot be installed here: {made.stdout.strip()[-200:]}")
    done = pre_commit(repository, tmp_path, "run")

    assert done.returncode == 1
    assert "GREW" in done.stdout
