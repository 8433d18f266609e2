"""What `gradtool check` says where files are not as they should be: a line each, and its code."""

from __future__ import annotations

import json
import os

import pytest
from gates import CONFIG, git, write

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12345\n"
BASELINE = "gradtool-baseline/net.json"
OTHERS = CONFIG + '[[case]]\nmodel = "other.onnx"\ndims = { batch = 4 }\n'


@pytest.fixture
def folder(tmp_path, run):
    """A model with its baseline, in a git repository without a commit."""
    (tmp_path / "gradtool.toml").write_text(CONFIG)
    write(tmp_path / "net.onnx")
    git(tmp_path, "init", "-q")
    assert run("check", "-j", "1", "--update").code == 0
    return tmp_path


@pytest.fixture
def check(run, folder):
    """Runs `gradtool check` in the repository."""
    assert folder.is_dir()

    def command(*arguments):
        return run("check", "-j", "1", *arguments)

    return command


def commit(folder):
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "a")


def only_line(outcome):
    """The one line about a case that failed."""
    lines = [line for line in outcome.out.splitlines() if line.startswith("net: ")]
    assert len(lines) == 1
    return lines[0]


BASELINES = {
    "text": ("not json", "is no JSON: Expecting value: line 1 column 1 (char 0); write it anew "),
    "nothing": ("", "is no JSON: Expecting value: line 1 column 1 (char 0); write it anew with "),
    "a list": ("[]", "is no JSON object; write it anew with --update"),
    "a later version": (
        '{"schema_version": 4}',
        "has no schema_version 3; it has 4, of another gradtool; write it anew with --update",
    ),
    "of another tool": ('{"results": []}', "has no schema_version 3; write it anew with --update"),
    "no metrics": ('{"schema_version": 1}', "is no baseline: write it anew with --update"),
    "a merge that was left": ("<<<<<<< HEAD\n{\n", "is no JSON: Expecting value: line 1 column 1"),
}


@pytest.mark.parametrize("mistake", BASELINES)
def test_a_baseline_that_is_none_is_named_with_what_to_do(check, folder, mistake):
    content, said = BASELINES[mistake]
    (folder / BASELINE).write_text(content)

    outcome = check()

    assert outcome.code == 2
    assert only_line(outcome).startswith(f"net: {BASELINE}: {said}")
    assert check("--update").code == check().code == 0


def test_a_folder_in_the_place_of_a_baseline_is_named(check, folder):
    (folder / BASELINE).unlink()
    (folder / BASELINE).mkdir()

    outcome, updated = check(), check("--update")

    assert (outcome.code, updated.code) == (2, 2)
    assert only_line(outcome) == f"net: {BASELINE}: cannot be read: it is not a regular file"
    assert updated.err == f"gradtool: {BASELINE}: is a folder; name a file in it\n"


def test_a_file_in_the_place_of_the_baselines_is_named(check, folder):
    (folder / BASELINE).unlink()
    (folder / BASELINE).parent.rmdir()
    (folder / BASELINE).parent.write_text("")

    outcome, updated = check(), check("--update")

    assert (outcome.code, updated.code) == (2, 2)
    assert only_line(outcome).startswith("net: gradtool-baseline: is no folder")
    assert updated.err == "gradtool: gradtool-baseline: cannot be made: File exists\n"


MODELS = {
    "missing": (None, "net.onnx: no such file"),
    "a pointer": (POINTER, "net.onnx: is a Git LFS pointer to the model: run git lfs pull"),
    "text": ("hello", "net.onnx: is not an ONNX model, or is truncated, or is nested too deeply"),
    "empty": ("", "net.onnx: is empty"),
}


@pytest.mark.parametrize("mistake", MODELS)
def test_a_model_that_cannot_be_read_is_named_as_the_configuration_does(check, folder, mistake):
    content, said = MODELS[mistake]
    (folder / "net.onnx").unlink()
    if content is not None:
        (folder / "net.onnx").write_text(content)

    outcome = check()
    document = json.loads(check("--output", "json").out)

    assert outcome.code == 2
    assert only_line(outcome) == f"net: {said}"
    assert str(folder) not in json.dumps(document)


@pytest.mark.skipif(getattr(os, "geteuid", int)() == 0, reason="root may read and write everything")
def test_what_may_not_be_read_or_written_is_named(check, folder):
    (folder / BASELINE).chmod(0)
    assert only_line(check()) == f"net: {BASELINE}: cannot be read: Permission denied"
    (folder / BASELINE).chmod(0o600)
    (folder / "net.onnx").chmod(0)
    assert only_line(check()) == "net: net.onnx: Permission denied"
    (folder / "net.onnx").chmod(0o600)

    (folder / BASELINE).unlink()
    (folder / BASELINE).parent.chmod(0o500)
    update = check("--update")
    (folder / BASELINE).parent.chmod(0o700)
    assert (update.code, update.err) == (2, f"gradtool: {BASELINE}: its folder is read-only\n")
    assert check("--update").code == 0

    folder.chmod(0o500)
    outcome = check("--output", "sarif:out.sarif")
    passed = check()
    folder.chmod(0o700)

    assert (outcome.code, passed.code) == (2, 0)
    assert outcome.err == "gradtool: out.sarif: its folder is read-only\n"


def test_a_pointer_at_the_base_fails_its_case_and_no_other(check, folder):
    (folder / "gradtool.toml").write_text(OTHERS)
    write(folder / "other.onnx")
    (folder / "net.onnx").write_text(POINTER)
    commit(folder)
    write(folder / "net.onnx")

    outcome = check("--base", "HEAD")

    assert outcome.code == 2
    assert only_line(outcome).startswith("net: at HEAD: net.onnx: is a Git LFS pointer")
    assert outcome.out.endswith("2 cases checked against HEAD, 1 failed\n")


def test_a_model_that_could_not_be_planned_at_the_base_is_named_as_it_is_here(check, folder):
    (folder / "net.onnx").write_text("hello")
    commit(folder)
    write(folder / "net.onnx")

    outcome = check("--base", "HEAD")

    assert outcome.code == 2
    assert only_line(outcome).startswith("net: at HEAD: net.onnx: is not an ONNX model")


def test_a_configuration_without_cases_says_who_writes_them(run, tmp_path):
    (tmp_path / "gradtool.toml").write_text("[check]\n")

    outcome = run("check")

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        "gradtool: gradtool.toml: has no [[case]]: gradtool init --force writes one\n"
    )


def test_without_a_configuration_init_is_named(run):
    outcome = run("check")

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        "gradtool: no configuration: gradtool init writes one, with a case for each model here; "
        "or name a file with --config\n"
    )
