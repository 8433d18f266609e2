"""What TensorBoard reads of a training is what its journal says."""

import sys

import numpy as np
import pytest
from trainings import examples, load, proto

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.training.callbacks import Watcher, Watchers
from gradtool.training.tensorboard import TensorBoard

OPTIONS = {"batch": 8, "lr": 0.1, "schedule": "cosine", "shuffle": False}


def events(folder):
    """By file, in the order of writing: the steps and numbers of each name."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for path in sorted(folder.iterdir()):
        data, numbers, at = path.read_bytes(), {}, 0
        while at < len(data):  # TFRecord: length, its checksum, the event, its checksum
            size = int.from_bytes(data[at : at + 8], "little")
            event = Event.FromString(data[at + 12 : at + 12 + size])
            at += 16 + size
            for value in event.summary.value:
                numbers.setdefault(value.tag, {})[event.step] = value.simple_value
        found.append(numbers)
    return found


@pytest.mark.extra
def test_events_are_those_of_the_training(tmp_path):
    pytest.importorskip("tensorboardX")
    with gt.Trainer(load(), steps=7, every=3, **OPTIONS) as trainer:
        watcher = Watchers(Watcher(), TensorBoard(tmp_path / "events"))
        history = trainer.fit(examples(80), evaluate=examples(20, 1), watcher=watcher)

    (found,) = events(tmp_path / "events")
    assert list(found["training/loss"]) == list(range(1, 8))
    assert list(found["training/loss"].values()) == pytest.approx(history.losses, rel=1e-6)
    assert found["training/lr"][1] == pytest.approx(0.1)
    assert found["training/lr"][7] < 0.1
    assert found["training/planned_bytes"][1] > 0
    expected = {step: numbers["loss"] for step, numbers in history.evaluations}
    assert found["evaluation/loss"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.extra
def test_one_that_goes_on_tells_its_own_steps(tmp_path):
    pytest.importorskip("tensorboardX")
    for steps, resume in ((4, False), (6, True)):
        with gt.Trainer(load(), steps=steps, **OPTIONS | {"schedule": "constant"}) as trainer:
            trainer.fit(
                examples(80), run=tmp_path / "run", resume=resume,
                watcher=TensorBoard(tmp_path / "events"),
            )  # fmt: skip

    first, second = events(tmp_path / "events")
    assert list(first["training/loss"]) == [1, 2, 3, 4]
    assert list(second["training/loss"]) == [5, 6]


@pytest.mark.extra
def test_the_command_writes_them_too(run, tmp_path, monkeypatch):
    pytest.importorskip("tensorboardX")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.onnx").write_bytes(proto().SerializeToString())
    np.savez("data.npz", **examples(80))
    done = run("train", "net.onnx", "--data", "data.npz", "--steps", "3", "--batch", "8",
               "--tensorboard", "events", "--loss-scale", "dynamic")  # fmt: skip

    assert done.code == 0, done.err
    (found,) = events(tmp_path / "events")
    assert sorted(found["training/loss"]) == [1, 2, 3]


def test_without_the_extra_a_line_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(UsageError, match="pip install 'tensorboardX"):
        TensorBoard(tmp_path)
