"""Models that several commands are tried on."""

import json

import onnx
import pytest
from decoders import Options, decoder
from deep import deep
from texts import chat, write_lines, write_tokenizer


@pytest.fixture
def net(model):
    """`deep.onnx`, whose batch is open."""
    return model(deep(), "deep.onnx")


@pytest.fixture
def fixed(model):
    """`fixed.onnx`: the same with a batch of 256."""
    return model(deep("256"), "fixed.onnx")


@pytest.fixture
def decoder_folder(tmp_path, monkeypatch):
    """A folder of a decoder with its weights in a file of their own, and conversations beside."""
    monkeypatch.chdir(tmp_path)
    found = write_tokenizer(tmp_path / "tiny")
    onnx.save(
        decoder(Options(heads=4, groups=2, words=40, most=64)), found / "model.onnx",
        save_as_external_data=True, location="model.onnx.data", size_threshold=64,
    )  # fmt: skip
    outputs = {"logits": "logits"}
    section = {"filename": "model.onnx", "outputs": outputs}
    document = {"model": {"context_length": 64, "decoder": section}}
    (found / "genai_config.json").write_text(json.dumps(document))
    rows = [chat("what is the color ?", "red " * (n % 9 + 1)) for n in range(24)]
    write_lines(tmp_path / "chat.jsonl", rows)
    return found
