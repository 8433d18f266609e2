"""The step of a decoder's folder: what it takes before a weight is read, and what is implied."""

import json
import re

import onnx
import pytest
from decoders import Options, decoder
from texts import chat, write_lines, write_tokenizer

LINE = "report tiny --lora 4 --batch 1 --dim sequence_length=16"


@pytest.fixture
def folder(tmp_path, monkeypatch):
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


@pytest.mark.parametrize("there", ["whole", "missing", "sparse"])
def test_what_a_step_takes_is_told_before_a_weight_is_read(run, folder, there):
    data = folder / "model.onnx.data"
    size = data.stat().st_size
    whole = run(*LINE.split())
    if there != "whole":
        data.unlink()
    if there == "sparse":
        with data.open("wb") as file:
            file.truncate(size)
    found = run(*LINE.split())

    assert found.code == 0
    assert found.out == whole.out
    assert "--loss causal:logits --only-loss --optimizer adamw" in found.err
    for what in ("frozen weights", "adapters", "optimizer state", "the arena", "the process"):
        assert re.search(rf"{what}[a-z ]* [\d.]+ [KM]?i?B", found.out), what


def test_adapters_and_their_state_are_counted_to_the_byte(run, folder):
    from gradtool.text.units import format_bytes

    weights = [(64, 64), (64, 32), (64, 32), (64, 64)] * 2 + [(64, 40)]
    adapters = sum(4 * 4 * (a + b) for a, b in weights)
    out = run(*LINE.split()).out

    assert f"adapters {format_bytes(adapters)}," in out
    assert f"optimizer state {format_bytes(2 * adapters + 8)};" in out


def test_what_is_said_goes_before_what_is_implied(run, folder):
    own = run(*LINE.split(), "--loss", "mean:logits", "--optimizer", "sgd", "--only-loss")
    file = run("report", "tiny/model.onnx", "--batch", "1", "--dim", "sequence_length=16")

    assert own.code == file.code == 0
    assert "as if" not in own.err + file.err
    assert "frozen" not in file.out


@pytest.mark.extra
def test_the_shortest_line_trains_adapters_on_what_the_assistant_says(run, folder):
    pytest.importorskip("tokenizers")
    outcome = run(*"train tiny --data chat.jsonl --lora 4".split())

    assert outcome.code == 0, outcome.err
    assert "--loss causal:logits --only-loss" in outcome.err
    assert "of which" in outcome.err
    assert "step 3/3" in outcome.err
    whole = run(*"train tiny --data chat.jsonl --lora 4 --no-mask-prompt --force".split())
    assert "of which" not in whole.err


@pytest.mark.extra
@pytest.mark.parametrize("metric", ["perplexity", "accuracy"])
def test_scores_are_there_for_a_metric_that_reads_them(run, folder, metric):
    pytest.importorskip("tokenizers")
    line = f"train tiny --data chat.jsonl --lora 4 --split 25% --metric {metric} --steps 2"
    outcome = run(*line.split())

    assert outcome.code == 0, outcome.err
    assert f"{metric} " in outcome.out
    assert ("--only-loss" in outcome.err) == (metric == "perplexity")


@pytest.mark.extra
def test_texts_are_cut_to_what_a_memory_has_room_for(run, folder):
    pytest.importorskip("tokenizers")
    pytest.importorskip("gradtool.native.library")
    line = "train tiny --data chat.jsonl --lora 4 --steps 1 --memory"
    roomy = run(*line.split(), "16MiB")
    tight = run(*line.split(), "140KiB", "--force")
    none = run(*line.split(), "20KiB", "--force")

    assert roomy.code == 0, roomy.err
    assert "--max-length" not in roomy.err
    assert tight.code == 0, tight.err
    assert "--max-length 16 were given" in tight.err
    assert none.code == 2
    assert "no step of 8 examples fits" in none.err
