"""What an evaluation tells beside numbers of the weights: their means, and tables of counts."""

import json

import jsonschema
import numpy as np
import pytest
from trainings import Stopping, examples, lines, load, proto

import gradtool as gt
from gradtool.commands.schema import schema_named

DATA, TEST = examples(50), examples(21, 5)
OPTIONS = {"batch": 8, "steps": 12, "lr": 0.3, "every": 2, "ema": 0.8,
           "metric": ["loss", "accuracy"]}  # fmt: skip


def chosen(path):
    """The classes that a written model predicts of the test data."""
    return gt.run(gt.load(path), {"x": TEST["x"]}).outputs["y"].argmax(1)


# ----------------------------------------------------------------------------------------- means


@pytest.mark.parametrize("kind", ["dense", "normed"])
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_numbers_of_the_means_are_those_of_the_model_that_has_them(kind, micro_batches, tmp_path):
    options = OPTIONS | {"micro_batches": micro_batches, "train_mode": kind == "normed"}
    with gt.Trainer(load(kind), **options) as trainer:
        history = trainer.fit(DATA, evaluate=TEST, run=tmp_path / "run")
        for name, averages in (("raw", False), ("ema", True)):
            trainer.save(tmp_path / f"{name}.onnx", averages=averages)

    _, found = history.evaluations[-1]
    assert list(found) == ["loss", "accuracy", "ema loss", "ema accuracy"]
    assert found["loss"] != found["ema loss"]
    for name, file in (("accuracy", "raw"), ("ema accuracy", "ema")):
        right = chosen(tmp_path / f"{file}.onnx") == TEST["labels"]
        assert found[name] == pytest.approx(right.mean())
    told = [e["eval"] for e in lines(tmp_path / "run" / "metrics.jsonl") if "eval" in e]
    assert told == [numbers for _, numbers in history.evaluations]


def test_evaluating_the_means_changes_no_bit_of_the_training():
    found = []
    for evaluate in (TEST, None):
        with gt.Trainer(load(), **OPTIONS | {"metric": ()}) as trainer:
            losses = trainer.fit(DATA, evaluate=evaluate).losses
            found.append((losses, {n: v.tobytes() for n, v in trainer.session.values().items()}))

    assert found[0] == found[1]


def test_the_means_that_are_written_are_the_best_means(tmp_path):
    """Here the weights are best early, and their means late."""
    options = OPTIONS | {"lr": 3.0, "optimizer": "sgd", "ema": 0.9, "keep": 1}
    with gt.Trainer(load(), **options) as trainer:
        history = trainer.fit(DATA, evaluate=TEST, run=tmp_path)
        trainer.save(tmp_path / "ema.onnx", averages=True, best=True)
        trainer.save(tmp_path / "raw.onnx", best=True)

    every = dict(history.evaluations)
    for best, name in ((history.best, "loss"), (history.best_ema, "ema loss")):
        assert best.value == min(numbers[name] for numbers in every.values())
        assert every[best.step][name] == best.value
    assert history.best.step != history.best_ema.step
    for file, name, step in (("raw", "accuracy", history.best.step),
                             ("ema", "ema accuracy", history.best_ema.step)):  # fmt: skip
        right = chosen(tmp_path / f"{file}.onnx") == TEST["labels"]
        assert every[step][name] == pytest.approx(right.mean())


def test_patience_waits_for_the_means_as_well():
    options = OPTIONS | {"lr": 0.0, "patience": 2, "steps": 40}
    with gt.Trainer(load(), **options) as trainer:
        assert trainer.fit(DATA, evaluate=TEST).step == 6


# ---------------------------------------------------------------------------------------- tables


def counted(step, name="run"):
    document = json.loads((name / f"step-{step:08}.json").read_text())
    return document["tables"].get("confusion")


def test_a_table_is_that_of_the_weights_and_lies_in_their_checkpoint(tmp_path):
    options = OPTIONS | {"ema": None, "metric": ["confusion", "accuracy"], "keep": 9}
    with gt.Trainer(load(), **options) as trainer:
        history = trainer.fit(DATA, evaluate=TEST, run=tmp_path / "run")
        trainer.save(tmp_path / "last.onnx")

    expected = np.zeros((3, 3), int)
    np.add.at(expected, (TEST["labels"], chosen(tmp_path / "last.onnx")), 1)
    assert history.tables[12]["confusion"].tolist() == expected.tolist()
    assert counted(12, tmp_path / "run") == expected.tolist()
    assert set(history.tables) == {12, history.best.step}
    for step, numbers in history.evaluations:
        table = np.array(counted(step, tmp_path / "run"))
        assert numbers == {"accuracy": pytest.approx(table.trace() / table.sum())}


def test_without_another_metric_the_loss_tells_which_weights_are_best():
    with gt.Trainer(load(), **OPTIONS | {"metric": ["confusion"]}) as trainer:
        history = trainer.fit(DATA, evaluate=TEST)

    assert list(history.evaluations[0][1]) == ["loss", "ema loss"]
    assert list(history.tables[12]) == ["confusion", "ema confusion"]


def test_one_that_goes_on_has_the_tables_of_one_that_was_never_stopped(tmp_path):
    options = OPTIONS | {"metric": ["loss", "confusion"]}
    found = []
    for folder, stops in (("whole", ()), ("parts", (4, 5))):
        for stop in stops:
            with gt.Trainer(load(), **options) as trainer:
                watcher = Stopping(stop)
                trainer.fit(
                    DATA, evaluate=TEST, run=tmp_path / folder, resume=True, watcher=watcher
                )
        with gt.Trainer(load(), **options) as trainer:
            history = trainer.fit(DATA, evaluate=TEST, run=tmp_path / folder, resume=True)
        found.append(
            {s: {n: t.tolist() for n, t in each.items()} for s, each in history.tables.items()}
        )

    assert found[0] == found[1] != {}


@pytest.fixture
def trained(run, model, tmp_path):
    np.savez(tmp_path / "data.npz", **DATA)
    model(proto(), "net.onnx")

    def train(*more):
        line = ("net.onnx", "--data", "data.npz", "--batch", "8", "--epochs", "2", "--lr", "0.3")
        return run("train", *line, "--eval", "data.npz", "--metric", "confusion", *more)

    return train


def test_the_command_and_the_report_show_it(run, trained, tmp_path):
    done = trained("--metric", "accuracy")
    report = run("report", "net.train", "--html", "page.html")
    machine = json.loads(run("report", "net.train", "--format", "json").out)
    document = json.loads((tmp_path / "net.train" / "step-00000012.json").read_text())
    best = json.loads(
        (tmp_path / "net.train" / f"step-{document['best']['step']:08}.json").read_text()
    )

    assert done.code == report.code == 0, done.err + report.err
    for out in (done.out, report.out):
        assert f"confusion at step {document['best']['step']}: labels by row" in out
        for label, row in enumerate(best["tables"]["confusion"]):
            assert [str(label), *map(str, row)] in [line.split() for line in out.splitlines()]
    jsonschema.validate(machine, schema_named("runs"))
    assert machine["runs"][0]["tables"] == best["tables"]
    page = (tmp_path / "page.html").read_text()
    for row in best["tables"]["confusion"]:
        for column, count in enumerate(row):
            assert f"predicted {column}: {count}</title>" in page


def test_a_machine_has_every_count(trained):
    found = json.loads(trained("--format", "json").out)

    jsonschema.validate(found, schema_named("train"))
    assert sum(map(sum, found["tables"][0]["tables"]["confusion"])) == 50


@pytest.mark.parametrize("tables", [3, {"a": 3}, {"a": [[1, 2]]}, {"a": [["x"]]}, {"a": [[-1.5]]}])
def test_tables_of_a_stranger_are_refused(run, trained, tmp_path, tables):
    trained()
    path = max((tmp_path / "net.train").glob("step-*.json"))
    document = json.loads(path.read_text()) | {"tables": tables}
    document.pop("document_sha256")
    path.write_text(json.dumps(document))
    done = run("report", "net.train")

    assert done.code == 2
    assert "is damaged" in done.err
