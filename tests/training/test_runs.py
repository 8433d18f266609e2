"""The folder of a run: one training at a time, and a journal that is what was written."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from damages import made, trials
from trainings import examples, load

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.training import runs
from gradtool.training.callbacks import Watcher

OPTIONS = {"batch": 8, "lr": 0.1, "checkpoint_every": 4, "keep": 9, "steps": 12}
DATA = examples(50)


class Told(Watcher):
    """Keeps what is said, and does something at a step."""

    def __init__(self, at=0, what=None):
        self.lines, self.at, self.what = [], at, what

    def said(self, line):
        self.lines.append(line)

    def stepped(self, step, *_):
        if step == self.at:
            self.what()


def fitted(run, watcher=None, **how):
    with gt.Trainer(load(), **OPTIONS) as trainer:
        trainer.fit(DATA, run=run, watcher=watcher, **how)
        return {n: v.tobytes() for n, v in trainer.session.values().items()}


def content(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != runs.LOCK}


@pytest.mark.parametrize("how", [{}, {"resume": True}, {"fresh": True}])
def test_a_second_training_is_refused_and_touches_nothing(tmp_path, how):
    fitted(tmp_path / "run")
    before = content(tmp_path / "run")
    with runs.held(tmp_path / "run"), pytest.raises(UsageError) as error:
        fitted(tmp_path / "run", **how)

    assert "another training writes there" in str(error.value)
    assert content(tmp_path / "run") == before
    assert not (tmp_path / "run" / runs.LOCK).exists()


def test_a_folder_in_which_nothing_was_written_is_not_left(tmp_path):
    with runs.held(tmp_path / "run"):
        assert (tmp_path / "run").is_dir()

    assert not (tmp_path / "run").exists()


def broken(folder, what):
    for path in folder.glob("step-00000012*"):
        path.unlink()
    path = folder / "metrics.jsonl"
    data = path.read_bytes()
    if what == "gone":
        path.unlink()
    else:
        path.write_bytes({"cut": data[:50], "changed": data.replace(b"step", b"stop", 1)}[what])
    return path


@pytest.mark.parametrize("what", ["cut", "changed"])
def test_a_damaged_journal_is_refused_and_stays(tmp_path, what):
    fitted(tmp_path / "run")
    path = broken(tmp_path / "run", what)
    before = path.read_bytes()
    with pytest.raises(UsageError, match=r"metrics\.jsonl: is damaged: .* or move it away"):
        fitted(tmp_path / "run", resume=True)

    assert path.read_bytes() == before


def test_training_goes_on_where_the_journal_is_gone_and_says_so(tmp_path):
    whole = fitted(tmp_path / "run")
    path = broken(tmp_path / "run", "gone")
    told = Told()

    assert fitted(tmp_path / "run", told, resume=True) == whole
    assert any("metrics.jsonl: is gone" in line for line in told.lines)
    assert path.read_text().count("\n") == 4
    assert fitted(tmp_path / "run", resume=True) == whole


def test_a_file_that_is_no_journal_is_not_cut(tmp_path):
    (tmp_path / "run").mkdir()
    path = tmp_path / "run" / "metrics.jsonl"
    path.write_text('{"mine": 1}\n')
    with pytest.raises(UsageError, match="is no journal of a training"):
        fitted(tmp_path / "run", resume=True)

    assert path.read_text() == '{"mine": 1}\n'


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_a_fit_with_a_checkpoint_and_is_passed_on(tmp_path, name):
    number = getattr(signal, name)
    heard = []
    before = signal.signal(number, lambda *_: heard.append(number))
    try:
        fitted(tmp_path / "run", Told(6, lambda: os.kill(os.getpid(), number)))
    finally:
        signal.signal(number, before)

    assert heard == [number]
    assert (tmp_path / "run" / "step-00000006.json").exists()
    assert fitted(tmp_path / "run", resume=True) == fitted(tmp_path / "whole")


def test_numbers_that_a_type_has_not_are_named_as_they_are():
    labels = DATA["labels"].astype(np.uint64)
    labels[3] = 2**64 - 1
    with (
        gt.Trainer(load(), **OPTIONS) as trainer,
        pytest.raises(
            UsageError,
            match=r"'labels' has 18446744073709551615 in example 3, the model takes int64",
        ),
    ):
        trainer.fit({**DATA, "labels": labels})


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_damaged_files_are_refused_in_one_line_or_come_to_the_same_bits(tmp_path):
    """`python benchmarks/damage.py` tries 200."""
    whole = made(tmp_path / "whole")
    found = list(trials(whole, tmp_path / "trial", 25))

    assert [each for each in found if each[1] not in ("refused", "right")] == []
    assert {said for _, said in found} == {"refused", "right"}
