"""Parameters that are frozen until an epoch, and trained from then on."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from conftest import build, sampled
from forked_ranks import on_ranks, supported
from trainings import DENSE, Stopping, drawn, examples, lines, load, proto, weights

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.io import safetensors
from gradtool.training.callbacks import Watcher

DATA, TEST = examples(48), examples(21, 5)
LATE = {"batch": 8, "epochs": 4, "optimizer": "adam", "lr": 0.05, "unfreeze": ["w1@3", "b1@3"]}


class Seen(Watcher):
    """Keeps what is said, and the arenas of steps."""

    def __init__(self):
        self.lines, self.arenas = [], []

    def said(self, line):
        self.lines.append(line)

    def stepped(self, *told):
        self.arenas.append(told[-1])


def fit(options, *, model=None, stop=None, **how):
    """The history of a training and what it comes to."""
    watcher = how.pop("watcher", Stopping(stop))
    with gt.Trainer(load() if model is None else model, **options) as trainer:
        history = trainer.fit(DATA, watcher=watcher, **how)
        return history, trainer.session.values()


def test_what_is_unfrozen_stays_until_its_epoch_and_moves_from_then_on(tmp_path):
    first = weights()
    for stop, moves in ((12, ()), (13, ("w1", "b1"))):
        fit(LATE, stop=stop, run=tmp_path / str(stop))
        newest = max((tmp_path / str(stop)).glob("step-*.safetensors"))
        held = safetensors.load(newest).stored
        for name in ("w1", "b1", "w2", "b2"):
            moved = np.asarray(held[name]).tobytes() != first[name].tobytes()
            assert moved == (name in moves or name in ("w2", "b2"))
        assert ("w1_exp_avg" in held) == bool(moves)


def test_memory_is_smaller_until_then_and_both_plans_are_said():
    seen = Seen()
    fit(LATE, watcher=seen)
    before, after = set(seen.arenas[:12]), set(seen.arenas[12:])

    assert len(before) == len(after) == 1
    assert before.pop() + 2 * 4 * (6 * 5 + 5) <= after.pop()
    said = [line for line in seen.lines if line.startswith("from epoch")]
    assert [line.split(",")[0] for line in said] == [
        "from epoch 1 on: 2 of 4 parameters are trained",
        "from epoch 3 on: 4 of 4 parameters are trained",
    ]


def test_steps_are_those_of_two_trainings_one_after_the_other():
    """Of the second one, what is trained from the beginning has its state from the first."""
    _, found = fit({**LATE, "shuffle": False})
    options = {"loss": "ce:y", "optimizer": "adam"}
    with gt.Session(gt.grad(load(), wrt=["w2", "b2"], **options)) as head:
        batches = [
            {n: a[i : i + 8] for n, a in DATA.items()} | {"lr": 0.05} for i in range(0, 48, 8)
        ]
        for batch in batches * 2:
            head.step(batch)
        first = head.values()
    late = {2: ("w1", "b1")}
    with gt.Session(gt.grad(load(), unfrozen=late, **options)) as whole:
        whole.set(first)
        for batch in batches * 2:
            whole.step(batch)
        expected = whole.values()

    assert (found["step"], found["step_of_epoch_3"]) == (24, 12)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.extra
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_it_trains_as_torch_does_where_gradients_are_required_later(optimizer):
    torch = pytest.importorskip("torch")
    held = {name: array.astype(np.float64) for name, array in weights().items()}
    model = build(DENSE.replace("float[", "double["), **held)
    data = {"x": DATA["x"].astype(np.float64), "labels": DATA["labels"]}
    options = {**LATE, "optimizer": optimizer, "shuffle": False, "schedule": "cosine"}
    if optimizer == "sgd":
        options |= {"optimizer_option": ["momentum=0.9"], "lr_scale": ["w1=0.1"]}
    with gt.Trainer(gt.load(model), **options) as trainer:
        trainer.fit(data)
        found = trainer.session.values(*held)

    p = {n: torch.tensor(a, requires_grad=n in ("w2", "b2")) for n, a in held.items()}
    groups = [{"params": [p[n]], "lr": 0.05 * (0.1 if n == "w1" and optimizer == "sgd" else 1)}
              for n in p]  # fmt: skip
    made = (
        torch.optim.SGD(groups, momentum=0.9) if optimizer == "sgd" else torch.optim.AdamW(groups)
    )
    first = [group["lr"] for group in groups]
    for step in range(24):
        for tensor in (p["w1"], p["b1"]):
            tensor.requires_grad_(step >= 12)
        for group, rate in zip(made.param_groups, first, strict=True):
            group["lr"] = rate * 0.5 * (1 + np.cos(np.pi * step / 24))
        start = step % 6 * 8
        x, labels = (torch.tensor(data[n][start : start + 8]) for n in ("x", "labels"))
        made.zero_grad()
        y = torch.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
        torch.nn.functional.cross_entropy(y, labels).backward()
        made.step()
    for name, tensor in p.items():
        np.testing.assert_allclose(found[name], tensor.detach().numpy(), rtol=1e-8, atol=1e-10)


def of_run(options, folder, stops=(), kind="dense"):
    """The bytes of what a training with evaluations comes to, and its journal."""
    for stop in (*stops, None):
        with gt.Trainer(load(kind), **options) as trainer:
            history = trainer.fit(
                DATA, evaluate=TEST, run=folder, resume=bool(stops), watcher=Stopping(stop)
            )
            if stop is None:
                trainer.save(folder / "best.onnx", best=history.best is not None)
                trainer.save(folder / "last.onnx")
                if options.get("ema"):
                    trainer.save(folder / "ema.onnx", averages=True, best=True)
    newest = max(folder.glob("step-*.safetensors"))
    files = sorted(path for path in folder.iterdir() if path.suffix == ".onnx")
    return (
        history.step, history.best, [path.read_bytes() for path in files], newest.read_bytes(),
        lines(folder / "metrics.jsonl"),
    )  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", sampled(range(8), 3))
def test_it_goes_on_bit_for_bit_wherever_it_was_stopped(case, tmp_path):
    kind, options = drawn(8, 4)[case]
    del options["steps"]
    options |= {"epochs": 4, "lora": None, "unfreeze": ["b1@2", "w1@3"], "patience": None}
    whole = of_run(options, tmp_path / "whole", kind=kind)
    for stops in ((4, 6), (5, 12, 13), (7, 11)):
        folder = tmp_path / "-".join(map(str, stops))
        assert of_run(options, folder, stops, kind) == whole


def test_the_best_weights_of_an_epoch_before_have_what_was_frozen_then(tmp_path):
    options = {**LATE, "ema": 0.9, "epochs": 3, "unfreeze": ["w1@3"]}
    run, others = tmp_path / "run", {**DATA, "labels": (DATA["labels"] + 1) % 3}
    with gt.Trainer(load(), **options) as trainer:
        history = trainer.fit(DATA, evaluate=others, run=run)
        assert history.best.step <= 12 < history.step
        for averages in (False, True):
            trainer.save(tmp_path / f"{averages}.onnx", best=True, averages=averages)
            held = gt.load(tmp_path / f"{averages}.onnx").graph.initializers
            np.testing.assert_array_equal(held["w1"].const_value.numpy(), weights()["w1"])


def test_masters_and_statistics_begin_at_their_epoch(tmp_path):
    half = proto("normed")
    for tensor in half.graph.initializer:
        if tensor.name in ("w1", "w2"):
            array = onnx.numpy_helper.to_array(tensor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    options = {**LATE, "train_mode": True, "unfreeze": ["gain@3", "shift@3", "w1@2"]}
    seen = Seen()
    for stop in (13, None):
        with gt.Trainer(gt.load(half), **options) as trainer:
            trainer.fit(DATA, run=tmp_path / "run", resume=True, watcher=seen if stop is None
                        else Stopping(stop))  # fmt: skip
            values = trainer.session.values()
    with gt.Trainer(gt.load(half), **options) as trainer:
        trainer.fit(DATA)
        for name, array in trainer.session.values().items():
            np.testing.assert_array_equal(array, values[name], err_msg=name)
    assert values["mean"].any()


def test_a_half_becomes_a_master_at_its_epoch(tmp_path):
    text = DENSE.replace("float[batch, 6] x", "float16[batch, 6] x").replace(
        "(float[batch, 3] y)", "(float16[batch, 3] y)"
    )
    model = build(text, **{name: array.astype(np.float16) for name, array in weights().items()})
    data = {"x": DATA["x"].astype(np.float16), "labels": DATA["labels"]}
    found = []
    for stops in ((), (12, 14)):
        for stop in (*stops, None):
            with gt.Trainer(gt.load(model), **LATE) as trainer:
                how = {"run": tmp_path / f"{len(stops)}", "resume": bool(stops)}
                trainer.fit(data, watcher=Stopping(stop), **how)
                values = trainer.session.values()
        found.append(values)

    assert found[0]["w1"].dtype == np.float32
    for name, array in found[0].items():
        np.testing.assert_array_equal(array, found[1][name], err_msg=name)


def test_a_memory_holds_the_largest_phase():
    seen = Seen()
    options = {**LATE, "memory": 6000}
    history, _ = fit(options, watcher=seen)

    assert max(seen.arenas) <= 6000
    assert seen.arenas[0] < seen.arenas[-1]
    assert history.fit.chosen.peak == seen.arenas[-1]


@supported
@pytest.mark.sample(1, 2)
@pytest.mark.parametrize("run", [False, True])
def test_ranks_begin_a_phase_together(run, tmp_path):
    def work(group):
        how = {"run": tmp_path / "run"} if run else {}
        history, values = fit({**LATE, "ema": 0.5}, group=group, **how)
        return list(history.losses), {n: a for n, a in values.items() if "sum" not in n}

    (losses, first), (_, second) = on_ranks(2, work)
    history, alone = fit({**LATE, "ema": 0.5, "micro_batches": 2})
    assert losses == pytest.approx(list(history.losses), rel=1e-5)
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], err_msg=name)
        if name in weights():
            np.testing.assert_allclose(array, alone[name], rtol=1e-4, atol=1e-5)


def test_adapters_come_first_and_what_is_named_later():
    options = {**LATE, "lora": 2, "unfreeze": ["b1@2", "b2@3"]}
    history, values = fit(options)

    assert history.step == 24
    assert {"step", "step_of_epoch_2", "step_of_epoch_3"} <= set(values)
    assert values["step_of_epoch_2"] == 18
    assert values["b1"].tobytes() != weights()["b1"].tobytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unfreeze": ["w1"]}, "write GLOB@EPOCH"),
        ({"unfreeze": ["w1@1"]}, "epochs count from 1"),
        ({"unfreeze": ["@2"]}, "write GLOB@EPOCH"),
        ({"unfreeze": ["w1@two"]}, "write GLOB@EPOCH"),
        ({"unfreeze": ["w9@2"]}, "--unfreeze w9@2: no parameter"),
        ({"unfreeze": ["w9@2"], "wrt": ["w2"]}, "--unfreeze w9@2: no such value"),
        ({"unfreeze": ["w1@2"], "no_grad": ["w1"]}, "--unfreeze w1@2: no parameter"),
        ({"unfreeze": ["w1@5"]}, "--unfreeze w1@5: training ends with epoch 4"),
        ({"unfreeze": ["*@2"]}, "depends on no value to differentiate by"),
        ({"unfreeze": ["w1@2"], "plan": "made.json"}, "name a strategy"),
        ({"unfreeze": ["w1@2"], "stages": 2}, "stages"),
        ({"unfreeze": ["w1@2"], "shard": "optimizer"}, "shard"),
    ],
)
def test_what_cannot_be_unfrozen_is_refused_before_the_first_step(options, message, tmp_path):
    with pytest.raises(gt.GradtoolError, match=message):
        fit({**LATE, **options}, run=tmp_path / "run")
    assert not list(tmp_path.glob("run/*"))


def test_a_checkpoint_of_other_epochs_is_another_training(tmp_path):
    fit(LATE, stop=3, run=tmp_path)
    with pytest.raises(UsageError, match="unfreeze is"):
        fit({**LATE, "unfreeze": ["w1@2", "b1@3"]}, run=tmp_path, resume=True)


def test_the_command_unfreezes_and_goes_on(run, tmp_path):
    onnx.save(proto(), tmp_path / "net.onnx")
    np.savez(tmp_path / "data.npz", **DATA)
    line = ["train", tmp_path / "net.onnx", "--data", tmp_path / "data.npz", "--batch", "8"]
    line += ["--unfreeze", "w1@2", "--unfreeze", "b*@3", "--epochs", "3", "--lr", "0.05"]
    one = run(*line, "--wrt", "w2", "--run", tmp_path / "one", "-o", tmp_path / "one.onnx")

    assert one.code == 0, one.err
    assert "from epoch 2 on: 2 of 4 parameters are trained" in one.err
    entries = lines(tmp_path / "one" / "metrics.jsonl")
    assert [entry["step"] for entry in entries] == list(range(1, 19))
    held = gt.load(tmp_path / "one.onnx").graph.initializers
    for name, array in weights().items():
        assert held[name].const_value.numpy().tobytes() != array.tobytes()
    newest = max(Path(tmp_path / "one").glob("step-*.json"))
    assert json.loads(newest.read_text())["of"]["recipe"]["unfreeze"] == ["w1@2", "b*@3"]
