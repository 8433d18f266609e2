"""A folder of onnxruntime-genai is a model: its decoder, and what lies beside the folder."""

import json

import onnx
import pytest
from texts import chat, write_lines, write_model

from gradtool.io import genai


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A model with its tokenizer and a configuration, in the current folder; conversations."""
    monkeypatch.chdir(tmp_path)
    found = tmp_path / "tiny"
    write_model(found)
    document = {"model": {"context_length": 24, "decoder": {"filename": "model.onnx"}}}
    (found / "genai_config.json").write_text(json.dumps(document))
    write_lines(
        tmp_path / "chat.jsonl", [chat("what is the color ?", "red " * n) for n in range(1, 30)]
    )
    return found


@pytest.mark.parametrize("name", ["tiny", "tiny/"])
def test_gradients_are_those_of_the_decoder_and_lie_beside_the_folder(run, folder, name):
    before = sorted(path.name for path in folder.iterdir())

    assert run("grad", name).code == 0
    assert run("grad", "tiny/model.onnx", "-o", "other.onnx").code == 0
    assert (folder.parent / "tiny.grad.onnx").read_bytes() == (
        folder.parent / "other.onnx"
    ).read_bytes()
    assert sorted(path.name for path in folder.iterdir()) == before
    assert "peak" in run("report", name).out


def test_the_folder_itself_may_be_the_current_one(run, folder, monkeypatch):
    monkeypatch.chdir(folder)

    assert run("grad", ".").code == 0
    assert (folder.parent / "tiny.grad.onnx").exists()


def test_what_is_read_is_not_replaced(run, folder):
    before = (folder / "model.onnx").read_bytes()
    outcome = run("grad", "tiny", "-o", "tiny/model.onnx", "--force")

    assert outcome.code == 2
    assert "which is read" in outcome.err
    assert (folder / "model.onnx").read_bytes() == before


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("[", "is no JSON"), ("[]", "no JSON object"), ("{}", "has no 'model'"),
        ('{"model": {}}', "has no 'decoder'"), ('{"model": {"decoder": {}}}', "names no file"),
        ('{"model": {"decoder": {"pipeline": []}}}', "a pipeline of several"),
        ('{"model": {"decoder": {"filename": 3}}}', "names no file"),
        ('{"model": {"decoder": {"filename": "none.onnx"}}}', "none.onnx: no such file"),
        ("[" * 10**5, "is no JSON"),
    ],
)  # fmt: skip
def test_a_configuration_that_names_no_decoder_is_one_line(run, folder, document, said):
    (folder / "genai_config.json").write_text(document)
    outcome = run("grad", "tiny")

    assert outcome.code == 2
    assert said in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_folder_without_a_configuration_is_no_model(run, folder):
    (folder / "genai_config.json").unlink()
    outcome = run("grad", "tiny")

    assert outcome.code == 2
    assert genai.CONFIG in outcome.err


@pytest.mark.extra
def test_a_folder_is_trained_on_conversations(run, folder):
    pytest.importorskip("tokenizers")
    before = sorted(path.name for path in folder.iterdir())
    line = "train tiny --data chat.jsonl --loss ce:logits --mask-prompt --batch 4 --split 20%"
    outcome = run(*line.split())

    assert outcome.code == 0, outcome.err
    assert "tokens/s" in outcome.err
    assert "over 24 tokens" in outcome.err
    assert sorted(path.name for path in folder.iterdir()) == before
    trained, original = onnx.load("tiny.trained.onnx"), onnx.load("tiny/model.onnx")
    assert trained.graph.node == original.graph.node
    assert trained.graph.initializer != original.graph.initializer
    assert run(*line.split(), "--resume").code == 0
    assert run("train", "tiny", "--data", "chat.jsonl", "--max-length", "25").code == 2
