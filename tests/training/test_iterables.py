"""Batches that Python has: loaders, generators, data sets with a length; and what is held out."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from trainings import examples, load, stream

import gradtool as gt
from gradtool.errors import GradtoolError, UsageError
from gradtool.io import safetensors
from gradtool.training.callbacks import Watcher

GOOD = examples(24)
OPTIONS = {"batch": 4, "lr": 0.1, "optimizer": "sgd", "shuffle": False}


def history(data, options=None, **how):
    with gt.Trainer(load(), **OPTIONS | (options or {})) as trainer:
        return trainer.fit(data, **how)


def batches(kind=dict):
    for start in range(0, 24, 4):
        part = {name: array[start : start + 4] for name, array in GOOD.items()}
        yield part if kind is dict else kind(part.values())


class Examples:
    """A data set with a length, as of torch or `datasets`."""

    def __init__(self, kind=dict, count=24):
        self.kind, self.count, self.asked = kind, count, []

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        if number >= self.count:
            raise IndexError(number)
        self.asked.append(number)
        found = {"x": GOOD["x"][number], "labels": int(GOOD["labels"][number])}
        return found if self.kind is dict else self.kind(found.values())


class Loader:
    """Batches anew each epoch."""

    def __init__(self):
        self.epochs = []

    def set_epoch(self, epoch):
        self.epochs.append(epoch)

    def __iter__(self):
        return batches(tuple)


EXPECTED = {"epochs": 2}


@pytest.mark.parametrize("kind", [dict, tuple, list])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_data_set_with_a_length_is_taken_in_our_order(kind, shuffle):
    options = {"epochs": 2, "shuffle": shuffle}

    assert history(Examples(kind), options).losses == history(GOOD, options).losses


@pytest.mark.parametrize("kind", [dict, tuple, list])
def test_iterables_of_batches_are_taken_as_they_come(kind):
    expected = history(GOOD, EXPECTED).losses

    assert history(lambda: batches(kind), EXPECTED).losses == expected
    assert history(list(batches(kind)), EXPECTED).losses == expected
    assert history(batches(kind), {"epochs": 1}).losses == expected[:6]


def test_a_loader_is_begun_anew_and_told_the_epoch():
    loader = Loader()

    assert history(loader, EXPECTED).losses == history(GOOD, EXPECTED).losses
    assert loader.epochs[:2] == [0, 1]


def test_a_lone_tensor_is_the_only_input(tmp_path):
    from conftest import build

    path = tmp_path / "net.onnx"
    net = build("net (float[batch, 6] x) => (float[batch, 6] y) { y = Mul (x, w) }",
                w=np.ones(6, np.float32))  # fmt: skip
    path.write_bytes(net.SerializeToString())
    parts = [GOOD["x"][n : n + 4] for n in range(0, 24, 4)]
    with gt.Trainer(path, loss="mean:y", lr=0.1) as trainer:
        assert len(trainer.fit(parts).losses) == 6


def test_data_sets_are_asked_for_each_example_of_a_batch_once():
    data = Examples()
    history(data, {"epochs": 1})

    assert [data.asked.count(number) for number in range(8, 24)] == [1] * 16


class Stopping(Watcher):
    def __init__(self, at):
        self.at, self.now = at, 0

    def stepped(self, step, *_):
        self.now = step

    def stops(self):
        return self.now == self.at


@pytest.mark.parametrize("make", [Examples, lambda: stream, lambda: GOOD])
def test_a_training_goes_on_in_the_same_bits(tmp_path, make):
    options = {"steps": 8, "shuffle": True, "seed": 3}
    expected = history(make(), options, run=tmp_path / "whole")
    history(make(), options, run=tmp_path / "run", watcher=Stopping(5))
    history(make(), options, run=tmp_path / "run", resume=True)

    assert len(expected.losses) == 8
    found = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("whole", "run")]
    assert found[0] == found[1]


def raising():
    yield from list(batches())[:2]
    raise RuntimeError("gone")


class Broken(Examples):
    def __getitem__(self, number):
        if number == 9:
            raise OSError("no such\nfile")
        return super().__getitem__(number)


class Ragged(Examples):
    def __getitem__(self, number):
        found = super().__getitem__(number)
        return found | {"x": found["x"][:3]} if number == 5 else found


MISTAKES = {
    "is over after one epoch: give a function": (batches, {"epochs": 2}),
    "over after one epoch": (batches, {"steps": 7}),
    "batch 2: raised RuntimeError: gone": (raising, {"steps": 6}),
    "Broken: example 9: raised OSError: no such file": (Broken, {"epochs": 1}),
    "'x' has the shape [3] in example 5, the first has [6]": (Ragged, {"epochs": 1}),
    "batch 0 has 3 arrays, the model takes 2: x, labels": (
        lambda: [(np.zeros((4, 6), "f"), np.zeros(4), np.zeros(4))], {},
    ),
    "data is 5, and has to be a text": (lambda: 5, {}),
    "is int, arrays by name are needed": (lambda: iter([3]), {}),
    "is NoneType, arrays by name are needed": (lambda: iter([None, None]), {}),
    "holds no examples": (lambda: Examples(count=0), {}),
    "--split needs data with a number of examples": (batches, {"split": "10%"}),
}  # fmt: skip


@pytest.mark.parametrize("said", MISTAKES)
def test_mistakes_are_one_line(said):
    make, options = MISTAKES[said]
    with pytest.raises(GradtoolError) as error:
        history(make(), options)

    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_generator_is_not_evaluated_on():
    with pytest.raises(UsageError, match="is over after one epoch"):
        history(GOOD, {"epochs": 1}, evaluate=batches())


# --------------------------------------------------------------------------- held out


@pytest.mark.parametrize(("split", "count"), [("25%", 6), ("5", 5), ("0.1%", 0), ("24", 24)])
@pytest.mark.parametrize("kind", ["arrays", "stored", "dataset"])
def test_examples_are_held_out_by_the_seed(tmp_path, split, count, kind):
    safetensors.save(tmp_path / "a.safetensors", GOOD)
    data = {"arrays": GOOD, "stored": tmp_path / "a.safetensors", "dataset": Examples()}[kind]
    options = {"epochs": 1, "split": split, "batch": 1, "lr": 0.0}
    if count in (0, 24):
        with pytest.raises(UsageError, match="both need at least one"):
            history(data, options)
        return
    found = history(data, options | {"metric": ["accuracy"]})

    assert len(found.losses) == 24 - count
    alone = {float(each) for each in history(GOOD, options | {"split": None}).losses}
    assert {float(each) for each in found.losses} < alone
    again = history(data, options | {"metric": ["accuracy"]})
    assert (again.losses, again.evaluations) == (found.losses, found.evaluations)
    other = history(data, options | {"metric": ["accuracy"], "seed": 1})
    assert other.losses != found.losses


def test_what_is_held_out_is_the_same_when_a_training_goes_on(tmp_path):
    options = {"steps": 8, "split": "25%", "every": 2, "shuffle": True}
    history(GOOD, options, run=tmp_path / "whole")
    history(GOOD, options, run=tmp_path / "run", watcher=Stopping(3))
    history(GOOD, options, run=tmp_path / "run", resume=True)

    found = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("whole", "run")]
    assert found[0] == found[1]
    assert "eval" in json.loads(found[0].splitlines()[-1])
    with pytest.raises(UsageError, match="examples is 6 there and 12 here"):
        history(GOOD, options | {"split": "50%"}, run=tmp_path / "run", resume=True)


def test_a_split_and_data_to_evaluate_on_exclude_each_other(run, model, tmp_path):
    from trainings import proto

    with pytest.raises(UsageError, match="--split cannot be combined with --eval"):
        history(GOOD, {"split": "10%"}, evaluate=GOOD)
    model(proto(), "net.onnx")
    np.savez(tmp_path / "a.npz", **GOOD)
    line = ("train", "net.onnx", "--data", "a.npz")
    both = run(*line, "--split", "10%", "--eval", "a.npz")
    assert both.code == 2
    assert "cannot be combined" in both.err
    alone = run(*line, "--split", "25%", "--metric", "accuracy", "--result", "best")
    assert (alone.code, "6 of 24 examples are held out" in alone.err) == (0, True)


@pytest.mark.extra
@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_of_pytorch_are_taken(workers):
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(*map(torch.from_numpy, GOOD.values()))
    loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=workers)
    expected = history(GOOD, EXPECTED).losses

    assert history(loader, EXPECTED).losses == expected
    assert history(data, EXPECTED).losses == expected


def test_what_has_a_sampler_tells_it_the_epoch():
    loader, sampler = Loader(), Loader()
    wrapped = SimpleNamespace(sampler=sampler)
    from gradtool.training.iterables import again

    again(wrapped, 4)
    again(loader, 5)
    assert (sampler.epochs, loader.epochs) == ([4], [5])
