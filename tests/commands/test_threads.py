"""The threads of matrix products: fixed by the command line, left alone by the library."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from gradtool.commands.threads import physical_cores

NAMES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
SHOW = "import os, json; print(json.dumps(dict(os.environ)))"


@pytest.fixture
def bare(monkeypatch):
    for name in (*NAMES, "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)


def environment(code: str) -> dict[str, str]:
    """The environment of a process after it ran some code."""
    words = [sys.executable, "-c", f"{code}; {SHOW}"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.usefixtures("bare")
def test_the_command_line_fixes_what_is_open():
    found = environment("from gradtool.commands import threads; threads.fix()")

    assert found["OPENBLAS_NUM_THREADS"] == "1"
    assert found["MKL_NUM_THREADS"] == str(physical_cores())
    assert found["OMP_WAIT_POLICY"] == "PASSIVE"


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("name", NAMES)
def test_what_the_environment_says_holds(monkeypatch, name):
    monkeypatch.setenv(name, "3")
    found = environment("from gradtool.commands import threads; threads.fix()")

    assert found[name] == "3"
    assert ("OPENBLAS_NUM_THREADS" in found) == (name != "OMP_NUM_THREADS")


@pytest.mark.usefixtures("bare")
def test_the_library_changes_nothing():
    found = environment("import gradtool, numpy; gradtool.load; gradtool.run")

    assert not set(NAMES) & set(found)


@pytest.mark.usefixtures("bare")
def test_the_command_line_begins_by_fixing_them(shell):
    done = shell("doctor", "--format", "json")

    assert b"1 (OPENBLAS_NUM_THREADS) threads" in done.stdout


@pytest.mark.exhaustive
def test_a_step_takes_the_threads_that_are_asked_for(shell, tiny_model, tmp_path):
    for count in ("1", "2"):
        flags = ("--threads", count, "--save-grads", tmp_path / f"{count}.npz")
        assert shell("run", tiny_model, "--batch", "2", *flags).returncode == 0
    with np.load(tmp_path / "1.npz") as one, np.load(tmp_path / "2.npz") as two:
        for name in one:
            np.testing.assert_allclose(one[name], two[name], rtol=1e-6)


def test_no_command_loads_numpy_before_its_options_are_read():
    """Else `--threads` is refused, whatever it says, and help takes seconds."""
    code = (
        "import sys, click; from gradtool.commands.group import group\n"
        "def walk(command):\n"
        "    ctx = click.Context(command)\n"
        "    for name in getattr(command, 'list_commands', lambda _: [])(ctx):\n"
        "        walk(command.get_command(ctx, name))\n"
        "    command.get_help(ctx)\n"
        "walk(group)\n"
        "assert 'numpy' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


def test_threads_cannot_be_changed_after_numpy_is_loaded(run, tiny_model):
    outcome = run("run", tiny_model, "--batch", "2", "--threads", "2")

    assert outcome.code == 2
    assert "numpy is loaded" in outcome.err


@pytest.mark.parametrize("count", ["0", "-1", "many"])
def test_a_number_of_threads_is_one_or_more(run, tiny_model, count):
    outcome = run("run", tiny_model, "--threads", count)

    assert outcome.code == 2
    assert "--threads" in outcome.err


def test_threads_of_one_core_count_once(tmp_path):
    processors = sorted(getattr(os, "sched_getaffinity", lambda _: {0})(0))
    for processor in processors:
        folder = tmp_path / f"cpu{processor}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text("0\n")
        (folder / "core_id").write_text("7\n")
    expected = 1 if hasattr(os, "sched_getaffinity") else os.cpu_count()

    assert physical_cores(tmp_path) == expected


def test_without_a_topology_processors_count():
    expected = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0)

    from pathlib import Path

    assert physical_cores(Path("/nowhere")) == len(expected)
