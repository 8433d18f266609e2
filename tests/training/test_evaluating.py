"""An evaluation that fails loses no step, and what goes on from there ends in the same bits."""

import json

import numpy as np
import pytest
from conftest import sampled
from trainings import examples, load

import gradtool as gt
from gradtool.errors import UsageError

DATA, TEST = examples(32), examples(20, 5)
WAYS = [
    {"every": 2}, {"every": 3, "checkpoint_every": 2}, {}, {"every": 2, "ema": 0.5},
    {"every": 2, "micro_batches": 2, "patience": 2}, {"every": 4, "keep": 1},
    {"every": 1, "loss_scale": "dynamic"},
]  # fmt: skip


def lines(folder):
    return (folder / "metrics.jsonl").read_text().splitlines()


class Calls:
    """A metric of a user that fails from a call on; the first call of a training tries it."""

    def __init__(self, most=None):
        self.most, self.count = most, 0

    def __call__(self, outputs, batch):
        self.count += 1
        if self.most is not None and self.count > self.most:
            raise RuntimeError("no")
        return float(((outputs["y"].argmax(-1) != batch["labels"]) * 1.0).mean())


def fit(folder, metric, monkeypatch, *, resume=False, **options):
    """Train for 8 steps by two epochs; the weights at the end."""
    monkeypatch.setattr("gradtool.training.metrics.imported", lambda _: metric)
    how = {"epochs": 2, "batch": 8, "lr": 0.1, "metric": ["mine:wrong"], **options}
    with gt.Trainer(load(), **how) as trainer:
        trainer.fit(DATA, evaluate=TEST, run=folder, resume=resume)
        return trainer.session.values(), trainer.weights(best=True)


@pytest.mark.sample(3)
@pytest.mark.parametrize("options", sampled(WAYS, 4, by=lambda _: None))
def test_an_evaluation_that_fails_loses_no_step(tmp_path, monkeypatch, options):
    whole = Calls()
    expected = fit(tmp_path / "whole", whole, monkeypatch, **options)
    last = whole.count - 1
    assert last >= 2
    for turn, most in enumerate((1, last)):
        folder = tmp_path / f"run{turn}"
        with pytest.raises(UsageError, match="raised RuntimeError: no"):
            fit(folder, Calls(most), monkeypatch, **options)
        steps = [json.loads(line).get("step") for line in lines(folder)]
        saved = max(int(path.stem[5:]) for path in folder.glob("step-*.json"))
        found = fit(folder, Calls(), monkeypatch, resume=True, **options)

        assert saved == max(steps)
        for mine, theirs in zip(found, expected, strict=True):
            assert [n for n in theirs if not np.array_equal(mine[n], theirs[n])] == []
        assert lines(folder) == lines(tmp_path / "whole")


def test_a_bad_label_is_found_before_the_first_step(tmp_path):
    labels = np.r_[DATA["labels"][:-1], 77]
    with (
        gt.Trainer(load(), batch=8) as trainer,
        pytest.raises(UsageError, match="'labels' has 77 in example 31, the model takes 0 to 2"),
    ):
        trainer.fit({**DATA, "labels": labels}, run=tmp_path / "run")

    assert not (tmp_path / "run").exists()
