"""A folder, a tokenizer, a template or a text that is wrong is one line before the first step."""

from operator import attrgetter

import pytest
from conftest import sampled
from wrong_folders import CASES


@pytest.mark.extra
@pytest.mark.parametrize("case", sampled(CASES, by=attrgetter("kind")), ids=str)
def test_what_is_wrong_is_one_line_before_the_first_step(run, decoder_folder, case):
    pytest.importorskip("tokenizers")
    case.change(decoder_folder)
    before = sorted(decoder_folder.parent.rglob("*"))
    outcome = run("-q", "train", "tiny", "--data", "chat.jsonl", "--lora", "4", *case.more)

    assert outcome.code == 2, outcome.err
    assert case.says in outcome.err
    assert outcome.err.startswith("gradtool: ")
    assert outcome.err.count("\n") == 1
    assert "Traceback" not in outcome.err
    assert sorted(decoder_folder.parent.rglob("*")) == before


@pytest.mark.parametrize("case", [each for each in CASES if each.kind == "folder"], ids=str)
def test_a_report_of_a_wrong_folder_is_one_line_too(run, decoder_folder, case):
    case.change(decoder_folder)
    line = "-q report tiny --lora 4 --batch 1 --dim sequence_length=8"
    outcome = run(*line.split())
    if case.name == "no weights":  # nobody reads them
        assert outcome.code == 0
        return

    assert outcome.code == 2, outcome.err
    assert outcome.err.startswith("gradtool: ")
    assert outcome.err.count("\n") == 1
