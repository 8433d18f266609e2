"""What packages read of a training is what its journal says."""

from __future__ import annotations

import itertools
import json
import sys

import numpy as np
import pytest
from trainings import examples, load, proto

import gradtool as gt
from gradtool.errors import GradtoolWarning, UsageError
from gradtool.training.callbacks import Begun
from gradtool.training.loggers import IDS, LOGGERS, Logger, TensorBoard, logger

OPTIONS = {"batch": 8, "lr": 0.1, "schedule": "cosine", "shuffle": False}
DATA, TEST = examples(80), examples(20, 1)


def fitted(folder, log, steps=7, *, resume=False, **options):
    with gt.Trainer(
        load(), **OPTIONS | {"steps": steps, "every": 3, "log": [log]} | options
    ) as made:
        return made.fit(DATA, evaluate=TEST, run=folder, resume=resume)


def losses(*histories):
    return dict(enumerate(itertools.chain(*(each.losses for each in histories)), 1))


# ----------------------------------------------------------------------------------- TensorBoard


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
def test_events_are_written_through_no_link(tmp_path):
    pytest.importorskip("tensorboardX")
    for folder in ("elsewhere", "run"):
        (tmp_path / folder).mkdir()
    (tmp_path / "run" / "events").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(UsageError, match="link"):
        fitted(tmp_path / "run", "tensorboard")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.extra
def test_events_are_those_of_the_training(tmp_path):
    pytest.importorskip("tensorboardX")
    history = fitted(tmp_path / "run", f"tensorboard:{tmp_path / 'events'}")

    (found,) = events(tmp_path / "events")
    assert found["training/loss"] == pytest.approx(losses(history), rel=1e-6)
    assert found["training/lr"][1] == pytest.approx(0.1)
    assert found["training/lr"][7] < 0.1
    assert found["training/planned_bytes"][1] > 0
    expected = {step: numbers["loss"] for step, numbers in history.evaluations}
    assert found["evaluation/loss"] == pytest.approx(expected, rel=1e-6)
    assert "options/text_summary" in found


@pytest.mark.extra
def test_one_that_goes_on_tells_its_own_steps_beside_the_run(tmp_path):
    pytest.importorskip("tensorboardX")
    for steps, resume in ((4, False), (6, True)):
        fitted(tmp_path / "run", "tensorboard", steps, resume=resume, schedule="constant")

    first, second = events(tmp_path / "run" / "events")
    assert list(first["training/loss"]) == [1, 2, 3, 4]
    assert list(second["training/loss"]) == [5, 6]


@pytest.mark.extra
def test_the_command_writes_them_too(run, tmp_path, monkeypatch):
    pytest.importorskip("tensorboardX")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.onnx").write_bytes(proto().SerializeToString())
    np.savez("data.npz", **DATA)
    done = run("train", "net.onnx", "--data", "data.npz", "--steps", "3", "--batch", "8",
               "--log", "tensorboard:events", "--loss-scale", "dynamic")  # fmt: skip

    assert done.code == 0, done.err
    (found,) = events(tmp_path / "events")
    assert sorted(found["training/loss"]) == [1, 2, 3]


@pytest.mark.extra
def test_without_a_folder_of_its_own_or_of_a_run_it_is_refused():
    pytest.importorskip("tensorboardX")
    with pytest.raises(UsageError, match="name a folder, as in tensorboard:DIR"):
        fitted(None, "tensorboard")


# -------------------------------------------------------------------------------- Weights & Biases


def offline(path):
    """The records of an offline run: blocks of 32 KiB of pieces, behind 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, piece = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (1 << 15) - at % (1 << 15) < 7:
            at += (1 << 15) - at % (1 << 15)
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        piece += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last piece
            yield Record.FromString(piece)
            piece = b""


def of_wandb(folder):
    """By run in the order of writing: its project, options and numbers by step."""
    found = []
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb"), key=lambda p: p.parent.name):
        told = {"config": {}, "steps": {}}
        for record in offline(path):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                told |= {"id": record.run.run_id, "project": record.run.project}
            for update in (*record.run.config.update, *record.config.update):
                told["config"][update.key] = json.loads(update.value_json or "null")
            if kind == "history":
                items = {
                    (item.key or "/".join(item.nested_key)): json.loads(item.value_json)
                    for item in record.history.item
                }
                told["steps"].setdefault(record.history.step.num, {}).update(items)
        found.append(told)
    return found


@pytest.fixture
def wandb(monkeypatch, tmp_path):
    """The package, which is not to touch the network."""
    for name, value in (("MODE", "offline"), ("SILENT", "true"), ("ERROR_REPORTING", "false")):
        monkeypatch.setenv(f"WANDB_{name}", value)
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    package = pytest.importorskip("wandb")
    yield package
    package.teardown()


@pytest.mark.extra
@pytest.mark.filterwarnings("ignore")
def test_a_project_has_the_training_and_one_that_goes_on_is_the_same_run(wandb, tmp_path):
    before = fitted(tmp_path / "run", "wandb:mine", 4, schedule="constant")
    after = fitted(tmp_path / "run", "wandb:mine", 7, resume=True, schedule="constant", lr=0.05)
    wandb.teardown()  # which writes what waits

    first, second = of_wandb(tmp_path)
    assert (first["project"], first["id"]) == ("mine", second["id"])
    assert first["config"]["lr"] == 0.1
    assert second["config"]["lr"] == 0.05
    told = {
        step: found["training/loss"] for step, found in (first["steps"] | second["steps"]).items()
    }
    assert told == pytest.approx(losses(before, after))
    evaluated = {
        s: f["evaluation/loss"] for s, f in second["steps"].items() if "evaluation/loss" in f
    }
    assert evaluated == {step: numbers["loss"] for step, numbers in after.evaluations}


# ----------------------------------------------------------------------------------------- MLflow


@pytest.mark.extra
@pytest.mark.filterwarnings("ignore")
def test_an_experiment_has_the_training_and_one_that_goes_on_is_the_same_run(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    before = fitted(tmp_path / "run", "mlflow:mine", 4, schedule="constant")
    after = fitted(tmp_path / "run", "mlflow:mine", 7, resume=True, schedule="constant", lr=0.05)

    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("mine")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.params["lr"] == "0.1"
    assert found.data.tags["lr from step 4"] == "0.05"
    told = client.get_metric_history(found.info.run_id, "training/loss")
    assert {each.step: each.value for each in told} == pytest.approx(losses(before, after))


# ------------------------------------------------------------------------------------ all of them


@pytest.mark.parametrize("name", LOGGERS)
def test_without_the_extra_a_line_says_what_to_install(name, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, LOGGERS[name].module, None)
    with pytest.raises(UsageError, match=f"--log {name} needs: pip install '{name}"):
        fitted(tmp_path / "run", name)

    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [("wandbb", "did you mean 'wandb'"), ("x", "there are tensorboard, wandb, mlflow"),
     ("wandb:", "nothing follows the colon"), ("", "no logger ''")],
)  # fmt: skip
def test_what_is_no_logger_is_one_line(text, said):
    with pytest.raises(UsageError) as error:
        logger(text)

    assert said in str(error.value)


class Broken(Logger):
    """A package that fails from a step on."""

    extra, module = "broken", "json"

    def __init__(self, at):
        super().__init__()
        self.at, self.told = at, []

    def _open(self, begun):
        if not self.at:
            raise RuntimeError("no server")
        self._remember(begun, f"id{begun.first}")
        self.known = self._known(begun)

    def _write(self, step, numbers, now):
        del numbers, now
        if step >= self.at:
            raise ConnectionError("gone")
        self.told.append(step)

    def _close(self):
        self.told.append("closed")


def test_a_logger_that_fails_on_the_way_ends_alone(tmp_path):
    broken = Broken(3)
    with (
        gt.Trainer(load(), **OPTIONS, steps=5) as trainer,
        pytest.warns(
            GradtoolWarning, match="--log broken: ConnectionError: gone: nothing more"
        ) as all_,
    ):
        history = trainer.fit(DATA, run=tmp_path / "run", watcher=broken)

    assert history.step == 5
    assert broken.told == [1, 2]
    assert len([each for each in all_ if each.category is GradtoolWarning]) == 1


def test_a_logger_that_cannot_begin_is_one_line_before_the_first_step(tmp_path):
    with (
        gt.Trainer(load(), **OPTIONS, steps=5) as trainer,
        pytest.raises(UsageError, match="--log broken: RuntimeError: no server"),
    ):
        trainer.fit(DATA, run=tmp_path / "run", watcher=Broken(0))

    assert not (tmp_path / "run" / "step-00000005.json").exists()


def test_a_new_training_in_a_folder_is_a_new_run_of_the_package(tmp_path):
    for first, known in ((0, None), (4, "id4"), (0, None)):
        broken = Broken(9)
        broken.begun(Begun(8, first, None, None, 1, tmp_path))
        assert broken.known == known
    with gt.Trainer(load(), **OPTIONS, steps=1) as trainer:
        trainer.fit(DATA, run=tmp_path)

    assert not (tmp_path / IDS).exists()


@pytest.mark.parametrize("name", ["../x", "", 3, None, ["x"]])
def test_a_name_that_no_package_gave_is_not_gone_on_with(name, tmp_path):
    (tmp_path / IDS).write_text(json.dumps({"schema_version": 1, "broken": name}))

    assert Broken(1)._known(Begun(8, 4, None, None, 1, tmp_path)) is None


def test_the_class_of_a_logger_is_a_watcher_of_python_too(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(UsageError, match="pip install 'tensorboardX"):
        TensorBoard(tmp_path)
