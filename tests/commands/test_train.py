"""`gradtool train`: data in, a model with new weights out; stopped, killed, gone on with."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from trainings import examples, lines, proto, weights

import gradtool as gt
from gradtool.native import library
from gradtool.program.native import choices

TRAIN = ("train", "net.onnx", "--data", "data.npz", "--batch", "8", "--lr", "0.1")


@pytest.fixture
def net(model, tmp_path):
    np.savez(tmp_path / "data.npz", **examples(50))
    np.savez(tmp_path / "test.npz", **examples(21, 5))
    return model(proto(), "net.onnx")


@pytest.fixture
def long(model, tmp_path):
    """A training that takes a while."""
    np.savez(tmp_path / "data.npz", **examples(4000))
    return model(proto(), "net.onnx")


def arrays(path):
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


def test_a_model_is_written_with_its_new_weights(run, net, tmp_path):
    outcome = run(*TRAIN, "--epochs", "2")

    assert outcome.code == 0
    assert "done after step 12: the last loss is " in outcome.out
    assert "wrote net.trained.onnx" in outcome.out
    assert "loss: softmax cross-entropy" in outcome.err
    assert "step 12/12  epoch 2  loss " in outcome.err
    with gt.Trainer(net, epochs=2, batch=8, lr=0.1) as trainer:
        trainer.fit(examples(50))
        expected = trainer.session.values("w?", "b?")
    for name, array in arrays(tmp_path / "net.trained.onnx").items():
        np.testing.assert_array_equal(array, expected[name])


@pytest.mark.usefixtures("net")
def test_the_best_weights_are_the_result_of_an_evaluation(run, tmp_path):
    """Labels are right in the first five batches and wrong in those after."""
    given = examples(80)
    given["labels"][40:] = (given["labels"][40:] + 1) % 3
    np.savez(tmp_path / "data.npz", **given)
    evaluated = (*TRAIN, "--no-shuffle", "--optimizer", "sgd", "--lr", "0.3", "--steps", "9",
                 "--eval", "test.npz", "--every", "1", "--format", "json")  # fmt: skip
    best = run(*evaluated)
    last = run(*evaluated, "--result", "last", "-o", "last.onnx", "--run", "there")

    found = json.loads(best.out)
    values = [each["loss"] for each in found["evaluations"]]
    assert found["best"] == {"step": 1 + int(np.argmin(values)), "value": min(values)}
    assert 1 < found["written"]["trained"]["step"] == found["best"]["step"] < 9
    assert json.loads(last.out)["written"]["trained"]["step"] == 9
    assert lines(tmp_path / "there" / "metrics.jsonl") == lines(
        tmp_path / "net.train" / "metrics.jsonl"
    )


@pytest.mark.parametrize("more", [(), ("--eval", "test.npz", "--ema", "0.5")])
@pytest.mark.usefixtures("net")
def test_adapters_are_merged_and_written_for_themselves(run, tmp_path, more):
    outcome = run(*TRAIN, "--lora", "2", "--seed", "3", "--lora-adapter", *more)

    assert outcome.code == 0
    for name in ("net.lora.onnx", "net.lora.onnx_adapter", "net.trained.onnx"):
        assert f"wrote {name} (" in outcome.out
    with gt.Trainer(tmp_path / "net.onnx", batch=8, lr=0.1, lora=2, seed=3) as trainer:
        trainer.fit(examples(50))
        trainer.save(tmp_path / "expected.onnx")
    expected = (tmp_path / "expected.onnx").read_bytes()
    assert (tmp_path / "net.trained.onnx").read_bytes() == expected
    before = (tmp_path / "net.lora.onnx_adapter").read_bytes()
    assert run(*TRAIN, "--lora", "2", "--lora-adapter", "-o", "b.onnx", "--run", "c").code == 0
    assert (tmp_path / "b.lora.onnx_adapter").read_bytes() != before


@pytest.mark.sample(3)
@pytest.mark.parametrize("more", [(), ("--micro-batches", "2"), ("--memory", "1MiB")])
@pytest.mark.usefixtures("net")
def test_a_step_that_returns_the_loss_alone_trains_alike(run, tmp_path, more):
    watched = ("--eval", "test.npz", "--metric", "perplexity", "--steps", "5", *more)
    plain = run(*TRAIN, *watched)
    alone = run(*TRAIN, *watched, "--only-loss", "-o", "alone.onnx", "--run", "alone")

    assert (plain.code, alone.code) == (0, 0), alone.err
    assert (tmp_path / "alone.onnx").read_bytes() == (tmp_path / "net.trained.onnx").read_bytes()
    assert lines(tmp_path / "alone" / "metrics.jsonl") == lines(
        tmp_path / "net.train" / "metrics.jsonl"
    )


@pytest.mark.usefixtures("net")
def test_what_is_not_returned_cannot_be_measured(run, tmp_path):
    measured = ("--eval", "test.npz", "--metric", "loss", "--metric", "accuracy")
    outcome = run(*TRAIN, *measured, "--only-loss")

    assert outcome.code == 2
    assert outcome.err.splitlines()[-1] == (
        "gradtool: --only-loss cannot be combined with a --metric of outputs"
    )
    assert not (tmp_path / "net.trained.onnx").exists()


@pytest.mark.parametrize("kernels", ["numpy", "native"])
def test_kernels_are_those_that_are_asked_for(run, net, tmp_path, kernels):
    if kernels == "native" and library.status()[0] is None:
        pytest.skip(library.status()[1])
    outcome = run(*TRAIN, "--steps", "5", "--kernels", kernels)

    assert outcome.code == 0
    with gt.Trainer(net, steps=5, batch=8, lr=0.1, kernels=kernels) as trainer:
        trainer.fit(examples(50))
        plan, *_ = trainer.session.plans
        expected = trainer.session.values("w?", "b?")
    assert plan.program.is_native is (kernels == "native")
    for name, array in arrays(tmp_path / "net.trained.onnx").items():
        np.testing.assert_array_equal(array, expected[name])


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, "exact"), ({"kernels": "native"}, "native"), ({"kernels": "numpy"}, "numpy"),
        ({"kernels": "native", "exact_conv": True}, "exact"),
    ],
)  # fmt: skip
def test_the_library_computes_where_nobody_says_but_no_convolution_by_winograd(asked, found):
    if library.status()[0] is None:
        pytest.skip(library.status()[1])
    sample = Path(__file__).parents[2] / "samples" / "cnn"
    with gt.Trainer(f"{sample}.onnx", steps=1, batch=2, **asked) as trainer:
        trainer.fit(f"{sample}.npz")
        plan, *_ = trainer.session.plans

    assert plan.program.kernels == found
    methods = {choice.method for choice in choices(plan.program)}
    assert ("winograd" in methods) is (found == "native")


def test_numpy_computes_without_a_library_where_nobody_says(net, monkeypatch):
    monkeypatch.setattr(library, "is_available", lambda: False)
    with gt.Trainer(net, steps=1, batch=8) as trainer:
        trainer.fit(examples(50))
        plan, *_ = trainer.session.plans

    assert plan.program.kernels == "numpy"


@pytest.mark.usefixtures("net")
def test_a_missing_library_is_said(run, monkeypatch):
    monkeypatch.setattr(library, "status", lambda: (None, "not built"))
    outcome = run(*TRAIN, "--steps", "1", "--kernels", "native")

    assert outcome.code == 0
    assert "kernels: numpy (not built)" in outcome.err


@pytest.mark.usefixtures("net")
def test_the_journal_has_a_line_a_step(run, tmp_path):
    run(*TRAIN, "--steps", "7", "--schedule", "linear", "--eval", "test.npz")

    found = lines(tmp_path / "net.train" / "metrics.jsonl")
    steps = [line for line in found if "eval" not in line]
    assert [line["step"] for line in steps] == list(range(1, 8))
    assert [line["epoch"] for line in steps] == [0] * 6 + [1]
    assert [line["lr"] for line in steps] == pytest.approx([0.1 * (1 - n / 7) for n in range(7)])
    assert [line["step"] for line in found if "eval" in line] == [6, 7]


@pytest.mark.usefixtures("net")
def test_names_and_averages_and_verbose_lines(run, tmp_path):
    np.savez(tmp_path / "data.npz", image=examples(16)["x"], y=examples(16)["labels"])
    outcome = run("-v", *TRAIN, "--map", "x=image", "--map", "labels=y", "--ema", "0.5")

    assert outcome.code == 0
    assert "wrote net.ema.onnx" in outcome.out
    assert "step 2: wrote net.train/step-00000002.json" in outcome.err
    assert set(arrays(tmp_path / "net.ema.onnx")) == set(weights())


@pytest.mark.usefixtures("net")
def test_nothing_is_written_over(run, tmp_path):
    assert run(*TRAIN).code == 0
    again = run(*TRAIN)
    resumed = run(*TRAIN, "--resume", "-o", "b.onnx")
    forced = run(*TRAIN, "--force")

    assert again.code == 2
    assert "net.trained.onnx exists; pass --force" in again.err
    assert run(*TRAIN, "-o", "c.onnx").err.endswith(
        "gradtool: net.train: holds a training: go on with it by resume, or name another\n"
    )
    assert (resumed.code, forced.code) == (0, 0)
    trained = (tmp_path / "net.trained.onnx").read_bytes()
    assert (tmp_path / "b.onnx").read_bytes() == trained


WRONG = {
    "no such file": ("--data", "no.npz"),
    "write INPUT=NAME": ("--map", "x"),
    "the model has no such input": ("--map", "w1=y"),
    "--epochs cannot be combined with --steps": ("--epochs", "1", "--steps", "2"),
    "--patience needs --eval": ("--patience", "2"),
    "--result needs --eval": ("--result", "best"),
    "no metric 'perplex'": ("--eval", "test.npz", "--metric", "perplex"),
    "examples are less than a batch of 64": ("--batch", "64"),
    "b1 exists; pass": ("-o", "b1"),
    "--lora-adapter needs --lora": ("--lora-adapter",),
    "--kernels native cannot be combined with --device cuda": (
        "--kernels",
        "native",
        "--device",
        "cuda",
    ),
}


@pytest.mark.parametrize("said", WRONG)
@pytest.mark.usefixtures("net")
def test_what_cannot_be_trained_is_one_line(run, tmp_path, said):
    (tmp_path / "b1").write_text("mine")
    outcome = run(*TRAIN, *WRONG[said])

    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].startswith("gradtool: ")
    assert said in outcome.err.splitlines()[-1]
    assert not (tmp_path / "net.trained.onnx").exists()


def test_a_training_graph_is_refused(run, net):
    run("grad", net, "--optimizer", "sgd")

    assert (
        "give the model that it was made from" in run("train", "net.grad.onnx", "--data", "a").err
    )


def started(folder, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "gradtool", *TRAIN, *arguments],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finished(folder, *arguments):
    child = started(folder, *arguments)
    _, err = child.communicate()
    assert child.returncode == 0, err


def wait_for(path, size, seconds=60):
    end = time.monotonic() + seconds
    while not path.exists() or path.stat().st_size < size:
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.usefixtures("long")
def test_whoever_stops_it_is_told_how_to_go_on(tmp_path, number):
    more = ("--steps", "800", "--checkpoint-every", "50")
    finished(tmp_path, *more, "--run", "whole", "-o", "whole.onnx")
    child = started(tmp_path, *more)
    wait_for(tmp_path / "net.train" / "step-00000050.json", 1)
    child.send_signal(number)
    _, err = child.communicate()

    assert child.returncode == 128 + number
    told, last = err.splitlines()[-2:]
    assert told.startswith("stopped after step ")
    assert "go on by the same command with --resume" in told
    assert told.endswith("--resume --export writes the weights of now")
    assert last == "gradtool: interrupted"
    assert not (tmp_path / "net.trained.onnx").exists()
    finished(tmp_path, *more, "--resume")
    assert (tmp_path / "net.trained.onnx").read_bytes() == (tmp_path / "whole.onnx").read_bytes()
    journals = [tmp_path / name / "metrics.jsonl" for name in ("net.train", "whole")]
    assert journals[0].read_bytes() == journals[1].read_bytes()


def killed(tmp_path, times, kills, seed):
    """Kill trainings at random moments; each ends in the bits of one that was let alone."""
    more = ("--steps", "300", "--checkpoint-every", "7", "--eval", "test.npz", "--every", "31",
            "--ema", "0.9", "--schedule", "cosine")  # fmt: skip
    np.savez(tmp_path / "test.npz", **examples(21, 5))
    began = time.monotonic()
    finished(tmp_path, *more, "--run", "whole", "-o", "whole.onnx")
    most = time.monotonic() - began
    rng = np.random.default_rng(seed)
    for turn in range(times):
        for path in (tmp_path / "net.train").glob("*") if turn else ():
            path.unlink()
        for path in ("net.trained.onnx", "net.ema.onnx"):
            (tmp_path / path).unlink(missing_ok=True)
        for _ in range(kills):
            child = started(tmp_path, *more, "--resume")
            time.sleep(rng.uniform(most / 4, most))
            child.kill()
            child.communicate()
        finished(tmp_path, *more, "--resume", "--force")
        for one, other in (
            ("net.trained.onnx", "whole.onnx"), ("net.ema.onnx", "whole.ema.onnx"),
            ("net.train/metrics.jsonl", "whole/metrics.jsonl"),
        ):  # fmt: skip
            assert (tmp_path / one).read_bytes() == (tmp_path / other).read_bytes(), turn


@pytest.mark.exhaustive
@pytest.mark.skipif(os.name == "nt", reason="kills as POSIX does")
@pytest.mark.usefixtures("long")
def test_a_kill_loses_nothing_but_the_steps_since_the_last_checkpoint(tmp_path):
    killed(tmp_path, 1, 3, 0)


@pytest.mark.slow
@pytest.mark.usefixtures("long")
def test_many_kills_lose_no_more(tmp_path):
    killed(tmp_path, 10, 5, 1)


def limit_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))


@pytest.mark.exhaustive
@pytest.mark.usefixtures("long")
def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path):
    """As good as full: no file may have more than 6 000 bytes."""
    more = ("--steps", "200", "--checkpoint-every", "10")
    finished(tmp_path, *more, "--run", "whole", "-o", "whole.onnx")
    child = subprocess.run(
        [sys.executable, "-m", "gradtool", *TRAIN, *more],
        cwd=tmp_path, capture_output=True, text=True, preexec_fn=limit_files, check=False,
    )  # fmt: skip

    assert child.returncode == 2
    assert child.stderr.splitlines()[-1].startswith("gradtool: ")
    assert "cannot be written: File too large" in child.stderr.splitlines()[-1]
    assert (tmp_path / "net.train" / "net.trained.safetensors").exists()
    assert list((tmp_path / "net.train").glob("step-*.json"))
    finished(tmp_path, *more, "--resume")
    assert (tmp_path / "net.trained.onnx").read_bytes() == (tmp_path / "whole.onnx").read_bytes()


@pytest.mark.usefixtures("net")
def test_check_guards_the_plan_that_was_chosen_for_a_memory(run, tmp_path):
    assert run(*TRAIN, "--steps", "1", "--memory", "1MiB", "--optimizer", "adamw").code == 0
    grad = ("grad", "net.onnx", "--optimizer", "adamw", "-o", "net.step.onnx")
    assert run(*grad).code == 0
    kernels = json.loads((tmp_path / "net.train" / "plan.json").read_text())["kernels"]
    exact = '\nkernels = "native"\nexact-conv = true' if kernels == "exact" else ""
    (tmp_path / "gradtool.toml").write_text(
        f'[[case]]\nmodel = "net.step.onnx"\nbatch = 8\nplan = "net.train/plan.json"{exact}\n'
    )

    assert run("check", "--update").code == 0
    again = run("check")
    assert again.code == 0
    assert "1 case checked, none failed" in again.out + again.err
