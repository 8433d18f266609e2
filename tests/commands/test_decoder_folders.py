"""The step of a decoder's folder: what it takes before a weight is read, and what is implied."""

import re

import pytest
from texts import chat, write_lines

LINE = "report tiny --lora 4 --batch 1 --dim sequence_length=16"
SHORTEST = "train tiny --data chat.jsonl --lora 4"


@pytest.mark.parametrize("there", ["whole", "missing", "sparse"])
def test_what_a_step_takes_is_told_before_a_weight_is_read(run, decoder_folder, there):
    data = decoder_folder / "model.onnx.data"
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


@pytest.mark.usefixtures("decoder_folder")
def test_adapters_and_their_state_are_counted_to_the_byte(run):
    from gradtool.text.units import format_bytes

    weights = [(64, 64), (64, 32), (64, 32), (64, 64)] * 2 + [(64, 40)]
    adapters = sum(4 * 4 * (a + b) for a, b in weights)
    out = run(*LINE.split()).out

    assert f"adapters {format_bytes(adapters)}," in out
    assert f"optimizer state {format_bytes(2 * adapters + 8)};" in out


@pytest.mark.usefixtures("decoder_folder")
def test_what_is_said_goes_before_what_is_implied(run):
    own = run(*LINE.split(), "--loss", "mean:logits", "--optimizer", "sgd", "--only-loss")
    file = run("report", "tiny/model.onnx", "--batch", "1", "--dim", "sequence_length=16")

    assert own.code == file.code == 0
    assert "as if" not in own.err + file.err
    assert "frozen" not in file.out


@pytest.mark.usefixtures("decoder_folder")
@pytest.mark.extra
def test_the_shortest_line_trains_adapters_on_what_the_assistant_says(run):
    pytest.importorskip("tokenizers")
    outcome = run(*SHORTEST.split())

    assert outcome.code == 0, outcome.err
    assert "--loss causal:logits --only-loss" in outcome.err
    assert "of which" in outcome.err
    assert "step 3/3" in outcome.err
    whole = run(*SHORTEST.split(), "--no-mask-prompt", "--force")
    assert "of which" not in whole.err


@pytest.mark.usefixtures("decoder_folder")
@pytest.mark.extra
@pytest.mark.parametrize("metric", ["perplexity", "accuracy"])
def test_scores_are_there_for_a_metric_that_reads_them(run, metric):
    pytest.importorskip("tokenizers")
    line = f"train tiny --data chat.jsonl --lora 4 --split 25% --metric {metric} --steps 2"
    outcome = run(*line.split())

    assert outcome.code == 0, outcome.err
    assert f"{metric} " in outcome.out
    assert ("--only-loss" in outcome.err) == (metric == "perplexity")


@pytest.mark.extra
def test_texts_are_cut_to_what_a_memory_has_room_for(run, decoder_folder):
    pytest.importorskip("tokenizers")
    rows = [chat("what is the color ?", "red " * n) for n in (40, 3, 4, 5)]
    write_lines(decoder_folder.parent / "chat.jsonl", rows)
    line = "train tiny --data chat.jsonl --lora 4 --steps 1 --batch 2 --force --memory"
    none = run(*line.split(), "20KiB")
    least = int(re.search(r"\((\d+) bytes\)", none.err)[1])
    roomy = run(*line.split(), f"{least}B")
    tight = run(*line.split(), f"{least * 7 // 8}B")

    assert none.code == 2
    assert "no step of 2 examples fits" in none.err
    assert roomy.code == tight.code == 0, roomy.err + tight.err
    assert "--max-length" not in roomy.err
    assert re.search("as if --max-length (16|32) were given", tight.err)
    assert "1 text of over" in tight.err


@pytest.mark.extra
@pytest.mark.usefixtures("decoder_folder")
def test_a_step_that_memory_has_no_room_for_names_what_fits_it(run, monkeypatch):
    pytest.importorskip("tokenizers")
    monkeypatch.setattr("gradtool.exec.available_memory.CHECKED", 0)
    monkeypatch.setattr("gradtool.exec.available_memory.free", lambda: 100_000)
    outcome = run("-q", *SHORTEST.split())

    assert outcome.code == 4
    assert "no room for an arena" in outcome.err
    assert "--memory SIZE" in outcome.err
    assert outcome.err.count("\n") == 1
