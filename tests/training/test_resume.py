"""Training that was stopped anywhere and gone on with ends in the bits of one that was not."""

import shutil

import pytest
from conftest import sampled
from trainings import Stopping, drawn, examples, lines, load

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.training.callbacks import Watcher
from gradtool.training.schedules import schedule

DATA, TEST = examples(50), examples(21, 5)


def trained(kind, options, folder, stops=()):
    """The bytes of what a training comes to, and its journal; stopped after some steps."""
    for stop in stops:
        with gt.Trainer(load(kind), **options) as trainer:
            watcher = Stopping(stop)
            ended = trainer.fit(DATA, evaluate=TEST, run=folder, resume=True, watcher=watcher).ended
            assert ended in ("interrupted", "patience", "steps")
    with gt.Trainer(load(kind), **options) as trainer:
        history = trainer.fit(DATA, evaluate=TEST, run=folder, resume=bool(stops))
        best, last = folder / "best.onnx", folder / "last.onnx"
        trainer.save(best, best=history.best is not None)
        trainer.save(last)
        files = [last, best]
        if options["ema"] is not None:
            trainer.save(folder / "ema.onnx", averages=True)
            files.append(folder / "ema.onnx")
        newest = max(folder.glob("step-*.safetensors"))
        return (
            history.step, history.ended, history.best, history.skipped,
            *(path.read_bytes() for path in files), newest.name, newest.read_bytes(),
            lines(folder / "metrics.jsonl"),
        )  # fmt: skip


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", sampled(range(6), 3))
def test_it_ends_in_the_same_bits_whatever_its_options(case, tmp_path):
    kind, options = drawn(6)[case]
    whole = trained(kind, options, tmp_path / "whole")
    for stops in ((3, 4), (options["steps"],)):
        folder = tmp_path / "-".join(map(str, stops))

        assert trained(kind, options, folder, stops) == whole, stops
        shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.parametrize("case", range(100))
def test_it_does_so_for_many_options(case, tmp_path):
    kind, options = drawn(100, seed=1)[case]
    whole = trained(kind, options, tmp_path / "whole")

    assert (
        trained(kind, options, tmp_path / "parts", (1 + case % 7, 8, options["steps"] - 1)) == whole
    )


def test_an_epoch_more_goes_on(tmp_path):
    """Of a rate that does not depend on the end."""
    kind, options = "dense", {"batch": 8, "lr": 0.1, "epochs": 3}
    with gt.Trainer(load(kind), **options) as trainer:
        whole = trainer.fit(DATA, run=tmp_path / "a")
        trainer.save(tmp_path / "a.onnx")
    for epochs in (1, 3):
        with gt.Trainer(load(kind), **options | {"epochs": epochs}) as trainer:
            part = trainer.fit(DATA, run=tmp_path / "b", resume=epochs > 1)
            trainer.save(tmp_path / "b.onnx", force=True)

    assert part.losses == whole.losses[6:]
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


OTHERS = {
    "optimizer is adamw there and sgd here": {"optimizer": "sgd"},
    "seed is 0 there and 1 here": {"seed": 1},
    "batch is 8 there and 4 here": {"batch": 4},
    "micro_batches is 1 there and 2 here": {"micro_batches": 2},
    "ema is nothing there and 0.9 here": {"ema": 0.9},
    "shuffle is True there and False here": {"shuffle": False},
    "w1 is FLOAT[6,5] there and nothing here": {"no_grad": ["s"]},
    "evaluation is nothing there": {},
    "x is float32[50, 6] there and float32[40, 6] here": {},
    "another training: model: ": {},
}


class Told(Watcher):
    def __init__(self):
        self.lines = []

    def said(self, line):
        self.lines.append(line)


CHANGES = {
    "lr 0.2 (0.1 before)": {"lr": 0.2},
    "schedule linear@end=0.0 (cosine@end=0.0 before)": {"schedule": "linear"},
    "warmup 3 (0 before)": {"warmup": 3},
    "steps 12 (8 before)": {"steps": 12},
    "steps none (8 before), epochs 2 (none before)": {"steps": None, "epochs": 2},
    "every 4 (3 before)": {"every": 4},
    "patience 9 (none before)": {"patience": 9},
    "": {},
}


@pytest.mark.parametrize("said", CHANGES)
def test_what_may_change_is_said_and_gone_on_with(said, tmp_path):
    options = {"batch": 8, "steps": 8, "lr": 0.1, "schedule": "cosine", "every": 3}
    with gt.Trainer(load(), **options) as trainer:
        trainer.fit(DATA, evaluate=TEST, run=tmp_path, watcher=Stopping(4))
    told, now = Told(), options | CHANGES[said]
    with gt.Trainer(load(), **now) as trainer:
        history = trainer.fit(DATA, evaluate=TEST, run=tmp_path, resume=True, watcher=told)

    changed = [line for line in told.lines if "from here on" in line]
    assert changed == ([f"from here on: {said}"] if said else [])
    assert history.step == (now["steps"] or 12)
    rates = [entry["lr"] for entry in lines(tmp_path / "metrics.jsonl") if "lr" in entry]
    end = now["steps"] or 12
    made = schedule(now["schedule"], now["lr"], warmup=now.get("warmup", 0), steps=end)
    assert rates[4:] == [made(step) for step in range(4, end)]


def test_what_nobody_names_stays_as_the_run_has_it(tmp_path):
    options = {"batch": 8, "steps": 8, "lr": 0.1, "schedule": "step@every=3", "warmup": 2}
    for folder in ("whole", "parts"):
        watcher = Stopping(4) if folder == "parts" else None
        with gt.Trainer(load(), **options, every=3) as trainer:
            trainer.fit(DATA, evaluate=TEST, run=tmp_path / folder, watcher=watcher)
    with gt.Trainer(load(), batch=8) as trainer:
        trainer.fit(DATA, evaluate=TEST, run=tmp_path / "parts", resume=True)

    whole, parts = (lines(tmp_path / folder / "metrics.jsonl") for folder in ("whole", "parts"))
    assert whole == parts


def test_a_schedule_that_is_code_is_not_taken_from_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rates_here.py").write_text("def f(step):\n    return 0.5\n")
    with gt.Trainer(load(), batch=8, steps=8, schedule="rates_here:f") as trainer:
        trainer.fit(DATA, run="run", watcher=Stopping(4))
    with (
        gt.Trainer(load(), batch=8) as trainer,
        pytest.raises(UsageError, match=r"is code, rates_here:f: name it with --schedule"),
    ):
        trainer.fit(DATA, run="run", resume=True)


@pytest.mark.sample(3)
@pytest.mark.parametrize("said", OTHERS)
def test_a_checkpoint_of_something_else_is_refused_with_what_differs(said, tmp_path):
    options = {"batch": 8, "steps": 5, "lr": 0.1}
    with gt.Trainer(load(), **options) as trainer:
        trainer.fit(DATA, run=tmp_path)
    data = examples(40) if "[40" in said else DATA
    kind = "normed" if "model" in said else "dense"
    evaluate = TEST if "evaluation" in said else None
    with (
        gt.Trainer(load(kind), **options | OTHERS[said]) as trainer,
        pytest.raises(UsageError) as error,
    ):
        trainer.fit(data, evaluate=evaluate, run=tmp_path, resume=True)

    assert "is a checkpoint of another training" in str(error.value)
    assert said in str(error.value)


def test_a_training_is_not_written_over(tmp_path):
    with gt.Trainer(load(), batch=8, steps=2) as trainer:
        trainer.fit(DATA, run=tmp_path)
        with pytest.raises(UsageError, match="holds a training"):
            trainer.fit(DATA, run=tmp_path)
        trainer.fit(DATA, run=tmp_path, fresh=True)

    assert len(lines(tmp_path / "metrics.jsonl")) == 2


def test_weights_that_stay_as_they_are_belong_to_a_training(tmp_path):
    from trainings import proto

    def changed():
        made = proto("normed")
        tensor = next(t for t in made.graph.initializer if t.name == "mean")
        tensor.raw_data = bytes(20)[:-1] + b"\x01"
        return made

    with gt.Trainer(load("normed"), batch=8, steps=2) as trainer:
        trainer.fit(DATA, run=tmp_path)
    with (
        gt.Trainer(gt.load(changed()), batch=8, steps=2) as trainer,
        pytest.raises(UsageError, match="model: constants is"),
    ):
        trainer.fit(DATA, run=tmp_path, resume=True)
