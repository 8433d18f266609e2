"""What a configuration names lies in its repository, by whatever way it is named."""

import os
import shutil

import numpy as np
import pytest
from conftest import sampled

from gradtool.check import cache
from gradtool.check.config import load

HEAD = """head (float[batch, 8] x) => (float[batch, 4] y) {
    h = MatMul (x, w) t = Tanh (h) y = MatMul (t, v)
}"""
SAYS = "lies outside the repository: --allow-outside takes it all the same"
KEYS = {
    "model": ("o.onnx", "{0}"),
    "plan": ("p.json", "m.onnx", "plan = '{0}'"),
    "policy": ("p.toml", "m.onnx", "plan = {{ policy = '{0}' }}"),
    "class weights": ("w.npy", "m.onnx", "loss = 'ce@weight={0}'"),
}
COMMANDS = (
    ("check", "--allow-new"), ("check", "--update"), ("check", "--list"), ("report",), ("grad",),
    ("mirror", "--report"), ("recompute", "--strategy", "sqrt"), ("run",),
    ("kit",), ("compare", "--plan", "mirror"),
)  # fmt: skip


WAYS = {  # how a file outside is named, and the links that are made for it
    "parents": ("../outside/{0}", {}),
    "an absolute path": ("{1}/outside/{0}", {}),
    "parents of a folder": ("sub/../../outside/{0}", {}),
    "a link": ("l-{0}", {"l-{0}": "../outside/{0}"}),
    "a folder link": ("l/{0}", {"l": "../outside"}),
    "a chain": ("sub/l/{0}", {"sub/l": "../l", "l": "../outside"}),
}


@pytest.fixture
def repository(tmp_path, model, monkeypatch):
    """A repository in which a command is given, and a folder beside it."""
    found, outside = tmp_path / "repository", tmp_path / "outside"
    for folder in (found / ".git", found / "sub", outside):
        folder.mkdir(parents=True)
    weights = {"w": np.ones((8, 4), np.float32), "v": np.ones((4, 4), np.float32)}
    shutil.move(model(HEAD, **weights), found / "m.onnx")
    shutil.copy(found / "m.onnx", outside / "o.onnx")
    np.save(outside / "w.npy", np.ones(4, np.float32))
    (outside / "p.toml").write_text("keep = ['Tanh']\n")
    (outside / "p.json").write_text("{}")
    monkeypatch.chdir(found)
    return found


def write(repository, key, way=None):
    """A configuration with a case that names a file, outside if there is a way."""
    file, *texts = KEYS[key]
    path, links = WAYS[way] if way else ("{0}", {})
    for link, target in links.items():
        (repository / link.format(file)).symlink_to(target.format(file))
    model, *more = (text.format(path.format(file, repository.parent)) for text in texts)
    lines = ["[[case]]", f"model = '{model}'", "dims = { batch = 2 }", *more]
    (repository / "gradtool.toml").write_text("\n".join(lines) + "\n")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("key", "way", "command"),
    sampled([(k, w, c) for k in KEYS for w in WAYS for c in COMMANDS], 10, by=lambda each: each[2]),
)
def test_what_leads_out_is_refused(run, repository, key, way, command):
    write(repository, key, way)
    before = names(repository)

    outcome = run(*command)

    assert outcome.code == 2
    assert SAYS in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert names(repository) == before


@pytest.mark.parametrize("way", WAYS)
def test_a_flag_allows_it(run, repository, way):
    write(repository, "model", way)

    assert run("check", "--allow-new", "--allow-outside").code == 0
    assert run("--allow-outside", "report").code == 0


def test_a_file_inside_that_is_reached_through_outside_is_refused(run, repository):
    """Its weights would be looked for beside the link."""
    write(repository, "model", "parents")
    (repository.parent / "outside/o.onnx").unlink()
    (repository.parent / "outside/o.onnx").symlink_to("../repository/m.onnx")

    assert SAYS in run("report").err


def test_links_inside_are_followed(run, repository):
    (repository / "sub/l.onnx").symlink_to("../m.onnx")
    (repository / "sub/l").symlink_to("..")
    for path in ("sub/l.onnx", "sub/l/m.onnx", "sub/../m.onnx", str(repository / "m.onnx")):
        (repository / "gradtool.toml").write_text(f"[[case]]\nmodel = '{path}'\nbatch = 2\n")

        assert run("check", "--allow-new").code == 0, path


def test_without_a_repository_the_folder_of_the_configuration_is_the_bound(
    run, repository, monkeypatch
):
    (repository / ".git").rmdir()
    (repository / "sub/gradtool.toml").write_text("[[case]]\nmodel = '../m.onnx'\nbatch = 2\n")
    monkeypatch.chdir(repository / "sub")

    assert "lies outside the folder of the configuration: --allow" in run("check").err
    (repository / ".git").mkdir()
    assert run("check", "--allow-new").code == 0


def test_a_configuration_that_was_found_lies_there_itself(run, repository):
    target = repository.parent / "outside/gradtool.toml"
    target.write_text("[[case]]\nmodel = 'm.onnx'\nbatch = 2\n")
    (repository / "gradtool.toml").symlink_to(target)

    assert SAYS in run("check", "--allow-new").err
    assert run("check", "--allow-new", "--config", "gradtool.toml").code == 0


FOLDERS = {
    "a link": ("gradtool-baseline", "../outside"),
    "a link above it": ("sub/l", "../../outside"),
    "a link to nowhere": ("gradtool-baseline", "../outside/new"),
}


@pytest.mark.parametrize(
    ("command", "made"),
    [
        *((command, made) for command in ("check --update", "check") for made in FOLDERS),
        *(("init --force", made) for made in FOLDERS if "above" not in made),  # of its own folder
    ],
)
def test_no_folder_of_baselines_leads_out(run, repository, command, made):
    write(repository, "model")
    shutil.copy(repository / "m.onnx", repository / "o.onnx")
    link, target = FOLDERS[made]
    (repository / link).symlink_to(target)
    folder = f"{link}/b" if "/" in link else link
    config = repository / "gradtool.toml"
    config.write_text(f"[check]\nbaseline = '{folder}'\n{config.read_text()}")
    before = names(repository.parent / "outside")

    outcome = run(*command.split())

    assert outcome.code == 2
    assert SAYS in outcome.err
    assert names(repository.parent / "outside") == before


def test_no_case_of_a_model_outside_is_begun(run, repository):
    (repository / "sub/l.onnx").symlink_to("../../outside/o.onnx")

    outcome = run("init", "--dim", "batch=2")

    assert outcome.code == 0
    assert "sub/l.onnx: no case: model 'sub/l.onnx' lies outside the repository" in outcome.err
    assert run("init", "../outside/o.onnx", "--force").code == 2
    assert run("init", "../outside/o.onnx", "--force", "--allow-outside").code == 0


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("command", [("check", "--allow-new"), ("report",)])
def test_a_pipe_is_not_waited_for(run, repository, key, command):
    write(repository, key)
    os.mkfifo(repository / KEYS[key][0])

    outcome = run(*command)

    assert outcome.code == 2
    assert "is not a regular file" in outcome.err


@pytest.mark.parametrize("key", ["wrt", "no-grad", "input-grad", "train-mode", "lora-target"])
def test_no_key_reads_names_from_a_file(run, repository, key):
    (repository.parent / "outside/secret").write_text("TOP-SECRET\n")
    (repository / "gradtool.toml").write_text(
        f"[[case]]\nmodel = 'm.onnx'\nbatch = 2\n{key} = ['@../outside/secret']\n"
    )
    for command in ("check", "report", "grad"):
        outcome = run(command)

        assert outcome.code == 2
        assert "@FILE is for the command line" in outcome.err
        assert "TOP-SECRET" not in outcome.err + outcome.out


def test_class_weights_lie_beside_the_configuration(run, repository, monkeypatch):
    np.save(repository / "sub/w.npy", np.ones(4, np.float32))
    (repository / "sub/gradtool.toml").write_text(
        "[[case]]\nmodel = '../m.onnx'\nbatch = 2\nloss = 'ce@weight=w.npy'\n"
    )
    for command in ("check", "report"):
        more = ["--allow-new"] if command == "check" else []
        assert run(command, *more, "--config", "sub/gradtool.toml").code == 0
    monkeypatch.chdir(repository / "sub")
    assert run("check", "--allow-new").code == 0


def test_a_verdict_is_of_these_class_weights(repository):
    write(repository, "class weights")
    keys = set()
    for weight in (1, 2):
        np.save(repository / "w.npy", np.full(4, weight, np.float32))
        keys.add(cache.key_of(load(repository / "gradtool.toml").cases[0]))

    assert len(keys) == 2
