"""Data that turn out to be bad under way: one line, and nothing that was written is lost."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from conftest import sampled
from trainings import examples, lines, load

import gradtool as gt
from gradtool.errors import GradtoolError, UsageError

COUNT, BATCH = 48, 8
OPTIONS = {"batch": BATCH, "epochs": 2, "lr": 0.1, "checkpoint_every": 1, "keep": 20}
WRONG = {
    "a NaN": ("x", np.nan, "'x' has a NaN in example {}"),
    "a label too high": ("labels", 3, "'labels' has 3 in example {}, the model takes 0 to 2"),
    "a label too low": ("labels", -1, "'labels' has -1 in example {}, the model takes 0 to 2"),
}
CASES = [*itertools.product(WRONG, range(3), ["npz", "npy"])]


def written(kind, folder, arrays):
    """Data as a file, or as a folder of files."""
    if kind == "npz":
        np.savez(folder / "data.npz", **arrays)
        return folder / "data.npz"
    made = folder / "data"
    made.mkdir(exist_ok=True)
    for name, array in arrays.items():
        (made / f"{name}.npy").unlink(missing_ok=True)
        np.save(made / f"{name}.npy", array)
    return made


def fitted(data, run, **how):
    with gt.Trainer(load(), **OPTIONS) as trainer:
        trainer.fit(data, run=run, **how)
        return {n: v.tobytes() for n, v in trainer.session.values().items()}


@pytest.mark.sample(3)
@pytest.mark.parametrize(("what", "seed", "kind"), sampled(CASES, 3, by=lambda c: c[0]))
def test_mended_data_end_in_the_bits_of_good_ones(what, seed, kind, tmp_path):
    """One example is bad; steps before the batch that has it are kept, and gone on from."""
    name, value, said = WRONG[what]
    good = examples(COUNT, seed)
    place = int(np.random.default_rng(seed).integers(COUNT))
    bad = {n: array.copy() for n, array in good.items()}
    bad[name][place, ...] = value
    with pytest.raises(UsageError) as error:
        fitted(written(kind, tmp_path, bad), tmp_path / "run")

    assert said.format(place) in str(error.value)
    assert "\n" not in str(error.value)
    done = len(list((tmp_path / "run").glob("step-*.json")))
    assert done < COUNT // BATCH
    whole = fitted(good, tmp_path / "whole")
    data = written(kind, tmp_path, good)
    assert fitted(data, tmp_path / "run", resume=True) == whole
    journals = [lines(tmp_path / run / "metrics.jsonl") for run in ("run", "whole")]
    assert journals[0] == journals[1]


def _yields(*batches):
    def make():
        for batch in batches:
            if isinstance(batch, Exception):
                raise batch
            yield batch

    return make


def _raises(*_):
    raise KeyError("x")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda whole: (_yields(whole, RuntimeError("gone")), {}),
         "make: batch 1: raised RuntimeError: gone"),
        (lambda _: (_raises, {}), "_raises: raised KeyError: 'x'"),
        (lambda whole: (_yields({n: a[:0] for n, a in whole.items()}), {}),
         "make: a batch holds no examples"),
        (lambda whole: (whole, {"metric": (f"{__name__}:_raises",), "evaluate": whole}),
         f"--metric {__name__}:_raises: raised KeyError: 'x'"),
    ],
)  # fmt: skip
def test_what_other_peoples_functions_do_wrong_is_one_line(damage, said, monkeypatch):
    monkeypatch.setattr(
        "gradtool.training.metrics.imported", lambda text: globals()[text.partition(":")[2]]
    )
    data, options = damage(examples(8))
    evaluate = options.pop("evaluate", None)
    trainer = gt.Trainer(load(), batch=8, steps=2, **options)
    with trainer, pytest.raises(UsageError) as error:
        trainer.fit(data, evaluate=evaluate)

    told, _, at = str(error.value).partition(" (")
    assert told == said
    assert at.startswith(("tests/training/test_damage.py:", __file__))


@pytest.mark.parametrize("kind", ["dense", "normed"])
def test_an_infinity_in_the_data_is_named_where_the_loss_is_none(kind):
    data = examples(8)
    data["x"][3, 2] = np.inf
    said = pytest.raises(GradtoolError, match=r"'x' has an infinity in this batch$")
    with gt.Trainer(load(kind), batch=8, steps=4) as trainer, said:
        trainer.fit(data)


@pytest.mark.parametrize("good", [0, 1, 3])
def test_no_checkpoint_has_a_nan_and_nothing_stands_in_the_way_of_another_try(good, tmp_path):
    """The tanh of an infinity is finite, and so is the loss; its gradient is not."""
    bad = examples(8)
    bad["x"][3, 2] = np.inf
    batches = [*(examples(8, n) for n in range(good)), bad, examples(8)]
    with gt.Trainer(load(), steps=8, checkpoint_every=1, batch=8) as trainer:
        with pytest.raises(GradtoolError, match=f"has a NaN after step {good + 1}"):
            trainer.fit(_yields(*batches), run=tmp_path)
        history = trainer.fit(examples(80), run=tmp_path / "again")
        left = sorted(path.name for path in tmp_path.glob("*.safetensors"))
        assert left == [f"step-{n:08}.safetensors" for n in range(max(good - 1, 1), good + 1)]
        assert history.step == 8


def test_a_training_that_never_took_a_step_is_in_nobodys_way(tmp_path):
    bad = examples(8)
    bad["x"][3, 2] = np.nan
    with gt.Trainer(load(), steps=2, batch=8) as trainer:
        with pytest.raises(UsageError, match="has a NaN in example 3"):
            trainer.fit(bad, run=tmp_path)
        assert trainer.fit(examples(8), run=tmp_path).step == 2
