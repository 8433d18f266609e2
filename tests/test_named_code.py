"""Code that is named: what a command line may import, and what a configuration may not."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from conftest import TINY, build, tiny_weights
from shadows import Shadows

from gradtool.errors import UsageError
from gradtool.losses.terms import code_of
from gradtool.plugins import code_in, function_at

LOSS = "def loss(op, y):\n    return op.ReduceSum(y, keepdims=0)\n"
NOTES = "with open({mark!r}, 'a') as file:\n    file.write('run\\n')\n"
COMMANDS = {
    "check": ("--allow-new", "--no-cache", "--jobs", "2"),
    "grad": ("--force",),
    "report": (),
    "mirror": ("--report",),
    "recompute": ("--budget", "min", "--force"),
    "run": (),
    "kit": ("--optimizer", "sgd", "-o", "kit"),
    "train": ("--data", "data.npz", "--steps", "1", "--batch", "2", "--force"),
    "compare": ("--plan", "keep", "--plan", "mirror"),
}
NAMED = ["evil.mod:loss", "evil.mod:loss:e", "0.5*evil.mod:loss", "-1e3*evil.mod:loss:e"]


@pytest.fixture
def cloned(tmp_path):
    """A repository whose configuration names code, in a package that notes when it is run."""

    def make(loss: str = "evil.mod:loss", name: str = "gradtool.toml", head: str = "") -> Shadows:
        found = Shadows(tmp_path / "cloned", tmp_path / "imported")
        (found.folder / "evil").mkdir(parents=True)
        for file, rest in (("__init__.py", ""), ("mod.py", LOSS)):
            text = NOTES.format(mark=str(found.mark)) + rest
            (found.folder / "evil" / file).write_text(text)
        model = build(TINY, **tiny_weights())
        (found.folder / "tiny.onnx").write_bytes(model.SerializeToString())
        np.savez(found.folder / "data.npz", x=np.ones((4, 8), np.float32))
        cases = "".join(
            f'[[{head}case]]\nname = "{n}"\nmodel = "tiny.onnx"\nbatch = {n}\nloss = ["{loss}"]\n'
            for n in (2, 3)
        )
        (found.folder / name).write_text(cases)
        return found

    return make


# ------------------------------------------------------------------------------- a configuration


@pytest.mark.parametrize("command", COMMANDS)
def test_a_configuration_runs_no_code_unless_that_is_allowed(command, cloned, run, monkeypatch):
    folder = cloned()
    monkeypatch.chdir(folder.folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    done = run(command, *COMMANDS[command])

    assert (done.code, done.out, folder.imported) == (2, "", [])
    (line,) = [line for line in done.err.splitlines() if line.startswith("gradtool:")]
    for said in ("gradtool.toml", "case '2'", "loss = 'evil.mod:loss'", "--allow-code"):
        assert said in line


@pytest.mark.sample(3, 3)
@pytest.mark.parametrize(
    "command",
    [pytest.param(c, marks=() if c == "check" else pytest.mark.exhaustive) for c in COMMANDS],
)
def test_what_is_allowed_is_run_also_by_what_a_command_starts(command, cloned):
    folder = cloned()
    done = folder.gradtool("--allow-code", command, *COMMANDS[command])

    assert done.returncode == 0, done.stderr
    assert set(folder.imported) == {"run"}


@pytest.mark.parametrize("loss", NAMED)
def test_a_loss_of_a_configuration_is_code_however_it_is_written(loss, cloned, run, monkeypatch):
    folder = cloned(loss, "pyproject.toml", "tool.gradtool.")
    monkeypatch.chdir(folder.folder)
    done = run("report")

    assert (done.code, folder.imported) == (2, [])
    assert "pyproject.toml" in done.err
    assert code_of(loss) == "evil.mod:loss"


@pytest.mark.parametrize("loss", ["sum:e", "0.5*sum:e", "e", "auto"])
def test_a_loss_of_ours_or_a_value_is_no_code(loss, cloned, run, monkeypatch):
    folder = cloned(loss)
    monkeypatch.chdir(folder.folder)

    assert code_of(loss) is None
    assert run("check", "--list").code == 0


@pytest.mark.exhaustive
def test_code_is_found_beside_the_configuration_from_a_folder_below(cloned):
    folder = cloned()
    (folder.folder / ".git").mkdir()
    (folder.folder / "below").mkdir()
    below = Shadows(folder.folder / "below", folder.mark)
    done = below.gradtool("check", "--allow-code", *COMMANDS["check"])

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            ("check", "--no-config", "--allow-code"),
            "cannot be combined with --allow-code",
        ),
        (("report", "tiny.onnx", "--allow-code"), "no configuration is read"),
        (("doctor", "--allow-code"), "reads no configuration"),
        (("init", "--allow-code"), "imports no code"),
    ],
)
def test_a_flag_that_allows_nothing_is_refused(line, said, run):
    done = run(*line)

    assert done.code == 2
    assert said in done.err


# -------------------------------------------------------------------------------- a command line


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Writes modules into the current folder."""
    monkeypatch.chdir(tmp_path)

    def write(**modules: str) -> None:
        for name, text in modules.items():
            (tmp_path / f"{name}.py").write_text(text)

    return write


def test_a_named_module_and_what_it_imports_are_found(here):
    here(one_named="import one_beside\ndef f():\n    import one_later\n    return one_later.f()\n",
         one_beside="", one_later="def f():\n    return 5\n")  # fmt: skip
    found = function_at("one_named:f")

    assert found is not None
    assert found() == 5
    assert sys.path == [entry for entry in sys.path if entry not in ("", ".")]


def test_what_others_import_is_not_found_beside_a_named_module(here):
    here(two_named="import json\nf = json.loads\n", two_absent="raise SystemExit('imported')\n")
    assert function_at("two_named:f") is not None

    with pytest.raises(ModuleNotFoundError):
        import two_absent  # noqa: F401


def test_a_module_of_the_environment_wins_over_a_file_of_its_name(here):
    here(colorsys="raise SystemExit('imported')\n")
    found = function_at("colorsys:rgb_to_hsv")

    assert found is not None
    assert found.__code__.co_filename != "colorsys.py"
    with pytest.raises(UsageError, match=r"has no function 'mine' \(.*colorsys"):
        function_at("colorsys:mine")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0\n", "cannot be imported: ZeroDivisionError"),
        ("raise SystemExit(3)\n", "cannot be imported: SystemExit: 3"),
        ("import no_such_at_all\n", "cannot be imported: ModuleNotFoundError: No module named"),
        ("f = 3\n", "has no function 'f'"),
    ],
)
def test_a_module_that_is_no_good_is_one_line(here, text, said):
    here(three_named=text)

    with pytest.raises(UsageError) as told:
        function_at("three_named:f")
    assert said in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("path", ["a-b:f", "a/b:f", "../a:f", "a.:f", ".a:f", "a:f:g", "a", "a:"])
def test_what_is_no_name_of_code(path):
    assert code_in(path) is None
