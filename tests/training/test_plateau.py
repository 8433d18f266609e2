"""A learning rate by evaluations: that of PyTorch, evaluation by evaluation."""

import math

import pytest
from conftest import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from trainings import examples, lines, load

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.training.callbacks import Watcher
from gradtool.training.schedules import GIVEN, Plateau

DATA, TEST = examples(50), examples(21, 5)
VALUES = st.one_of(st.floats(-3, 3), st.sampled_from([1.0, 0.9999, 0.5, math.nan, math.inf]))
SETTINGS = st.fixed_dictionaries({
    "factor": st.sampled_from([0.0, 0.1, 0.5, 0.99]), "patience": st.integers(0, 3),
    "threshold": st.sampled_from([0.0, 1e-4, 0.3]), "cooldown": st.integers(0, 3),
    "min-lr": st.sampled_from([0.0, 0.02, 1.0]), "eps": st.sampled_from([0.0, 1e-8, 0.01]),
})  # fmt: skip


def rates(values, given, *, higher):
    state, found = Plateau(0.3), []
    for value in values:
        state = state.after(value, GIVEN | given, higher=higher)
        found.append(state.rate)
    return found


@pytest.mark.extra
@settings(max_examples=trials(300))
@given(st.lists(VALUES, min_size=1, max_size=30), SETTINGS, st.booleans())
def test_rates_are_those_of_torch(values, given, higher):
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
    named = {name.replace("-", "_"): value for name, value in given.items()}
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, "max" if higher else "min", **named
    )
    values = [value for value in values if not (higher and value == math.inf)]
    expected = []
    for value in values:
        theirs.step(value)
        expected.append(optimizer.param_groups[0]["lr"])

    assert rates(values, given, higher=higher) == expected


def test_a_rate_falls_after_patience_and_rests_while_it_cools():
    given = {"patience": 1, "factor": 0.5, "cooldown": 2}
    found = rates([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], given, higher=False)

    assert found == [0.3, 0.3, 0.15, 0.15, 0.15, 0.15, 0.075]


@settings(max_examples=trials(100))
@given(st.lists(VALUES, max_size=30), SETTINGS, st.booleans())
def test_a_rate_never_rises_and_is_no_lower_than_its_least(values, given, higher):
    found = [0.3, *rates(values, given, higher=higher)]

    assert found == sorted(found, reverse=True)
    assert all(rate >= min(0.3, given["min-lr"]) for rate in found)


OPTIONS = {
    "batch": 8, "steps": 16, "lr": 0.3, "every": 1, "warmup": 2, "metric": ["accuracy"],
    "schedule": "reduce-on-plateau@patience=1,factor=0.5,min_lr=0.01",
}  # fmt: skip


class Told(Watcher):
    def __init__(self, stop=None):
        self.lines, self.stop, self.now = [], stop, 0

    def stepped(self, step, *_):
        self.now = step

    def said(self, line):
        self.lines.append(line)

    def stops(self):
        return self.now == self.stop


def journal(folder, stop=None, **how):
    told = Told(stop)
    with gt.Trainer(load(), **OPTIONS | how.pop("options", {})) as trainer:
        trainer.fit(DATA, evaluate=TEST, run=folder, watcher=told, **how)
    return lines(folder / "metrics.jsonl"), told.lines


def test_a_training_goes_by_the_first_metric(tmp_path):
    entries, said = journal(tmp_path / "run")
    values = {e["step"]: e["eval"]["accuracy"] for e in entries if "eval" in e}
    found = {e["step"]: e["lr"] for e in entries if "lr" in e}

    given = {"patience": 1.0, "factor": 0.5, "min-lr": 0.01}
    after = rates([values[step] for step in range(2, 16)], given, higher=True)
    assert [found[1], found[2]] == [0.15, 0.3]
    assert [found[step] for step in range(3, 17)] == after
    assert min(after) < 0.3
    assert sum("the learning rate is" in line for line in said) == len({0.3, *after}) - 1


@pytest.mark.parametrize("stop", [1, 5, 9])
def test_it_goes_on_where_it_stood(tmp_path, stop):
    whole, _ = journal(tmp_path / "whole")
    journal(tmp_path / "parts", stop)
    parts, _ = journal(tmp_path / "parts", resume=True)

    assert parts == whole


def test_another_rate_on_going_on_is_the_rate_from_there(tmp_path):
    journal(tmp_path / "run", 12)
    entries, said = journal(tmp_path / "run", resume=True, options={"lr": 0.2})

    assert next(e["lr"] for e in entries if e["step"] == 13) == 0.2
    assert any("lr 0.2 (0.3 before)" in line for line in said)


def test_without_an_evaluation_it_is_refused_before_anything_is_written(tmp_path):
    with (
        gt.Trainer(load(), **{k: v for k, v in OPTIONS.items() if k != "metric"}) as trainer,
        pytest.raises(UsageError, match="goes by evaluations: give --eval DATA, or --split"),
    ):
        trainer.fit(DATA, run=tmp_path / "run")

    assert not (tmp_path / "run").exists()
