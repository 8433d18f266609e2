"""Which model is meant when none is named."""

import json
import shutil

import pytest


def meant(outcome):
    return outcome.err.splitlines()[0].removeprefix("model: ").split(" ")[0]


def test_none(run):
    outcome = run("grad")

    assert outcome.code == 2
    assert outcome.err == ("gradtool: no MODEL given, and there is no .onnx file in this folder\n")


@pytest.mark.usefixtures("tiny_model")
def test_the_only_one(run):
    outcome = run("report")

    assert outcome.code == 0
    assert "model: tiny.onnx (the only one here)" in outcome.err


def test_a_graph_that_we_wrote_does_not_count(run, tiny_model):
    assert run("grad", tiny_model, "-o", "anything.onnx").code == 0
    shutil.rmtree(".gradtool")

    assert meant(run("report")) == "tiny.onnx"


def test_of_several_none(run, tiny_model, tmp_path):
    shutil.copy(tiny_model, tmp_path / "also.onnx")

    outcome = run("report")

    assert outcome.code == 2
    assert outcome.err == "gradtool: no MODEL given; here are also.onnx, tiny.onnx\n"


def test_the_last_one(run, tiny_model, tmp_path):
    shutil.copy(tiny_model, tmp_path / "also.onnx")
    assert run("grad", "also.onnx").code == 0

    outcome = run("report")

    assert outcome.code == 0
    assert "model: also.onnx (the last 'gradtool grad' here)" in outcome.err


def test_the_last_one_has_changed(run, tiny_model, tmp_path):
    shutil.copy(tiny_model, tmp_path / "also.onnx")
    assert run("grad", "also.onnx").code == 0
    with (tmp_path / "also.onnx").open("ab") as file:
        file.write(b"\x38\x01")

    assert run("report").code == 2


@pytest.mark.usefixtures("tiny_model")
def test_a_broken_note_is_no_note(run, tmp_path):
    (tmp_path / ".gradtool").mkdir()
    for note in ("", "{", "[]", json.dumps({"model": "tiny.onnx"})):
        (tmp_path / ".gradtool" / "last.json").write_text(note)

        assert "the only one here" in run("report").err


def test_continuous_integration_has_no_memory(run, tiny_model, tmp_path, monkeypatch):
    shutil.copy(tiny_model, tmp_path / "also.onnx")
    assert run("grad", "also.onnx").code == 0
    monkeypatch.setenv("CI", "true")

    assert run("report").code == 2


def test_the_note_is_kept_out_of_version_control(run, tiny_model, tmp_path):
    assert run("grad", tiny_model).code == 0

    assert (tmp_path / ".gradtool" / ".gitignore").read_text() == "*\n"
