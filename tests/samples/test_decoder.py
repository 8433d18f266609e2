"""The decoder of the samples learns answers, and others in 4 bits, as onnxruntime-genai says."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parents[2] / "samples"


@pytest.fixture
def decoder(monkeypatch):
    """The script, as a module."""
    for package in ("torch", "transformers", "tokenizers", "onnxruntime_genai"):
        pytest.importorskip(package)
    monkeypatch.syspath_prepend(str(SAMPLES))
    import decoder

    yield decoder
    sys.modules.pop("decoder", None)


def lines(folder):
    """The `gradtool train` lines that the script shows, for a folder."""
    text = (SAMPLES / "decoder.py").read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.findall(r"^ +gradtool (train .*)$", text, re.MULTILINE)
    return [shlex.split(line.replace("DIR", str(folder))) for line in found]


@pytest.mark.extra
def test_a_decoder_answers_what_it_has_learned_and_learns_more_in_4_bits(decoder, run, tmp_path):
    folder, learned = tmp_path / "decoder", decoder.QUESTIONS
    decoder.build(folder)
    (tmp_path / "questions.jsonl").write_text(decoder.questions(learned))
    first, second = lines(tmp_path)
    assert run(*first).code == 0
    assert decoder.answers(folder) != learned
    assert decoder.answers(folder, tmp_path / "decoder.trained.onnx") == learned

    four = tmp_path / "decoder4"
    decoder.quantise(tmp_path / "decoder.trained.onnx", folder, four)
    more = {**learned, **decoder.CORRECTIONS}
    (tmp_path / "corrections.jsonl").write_text(decoder.questions(more))
    assert run(*second).code == 0
    adapted = tmp_path / "decoder4.lora.onnx"
    assert decoder.answers(four) == decoder.answers(four, adapted) == learned
    assert decoder.answers(four, adapted, Path(f"{adapted}_adapter")) == more
