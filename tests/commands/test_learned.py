"""`gradtool report RUN`: the curves of trainings, on a terminal, as a page, for machines."""

import json
import re

import jsonschema
import numpy as np
import pytest
from trainings import examples, proto

from gradtool.commands.schema import schema_named
from gradtool.reports.learning import Run
from gradtool.reports.learning_page import learning_page

TRAIN = ("-q", "train", "net.onnx", "--data", "data.npz", "--batch", "8", "--lr", "0.1")


@pytest.fixture
def trained(run, model, tmp_path):
    """Two trainings, in the folders a and b."""
    np.savez(tmp_path / "data.npz", **examples(50))
    model(proto(), "net.onnx")
    metrics = ("--metric", "loss", "--metric", "accuracy")
    scaled = ("--loss-scale", "3e38", "--loss", "1000*ce:y")
    each = {"a": ("--eval", "data.npz", *metrics), "b": (*scaled, "--schedule", "cosine")}
    for name, more in each.items():
        done = run(*TRAIN, "--epochs", "2", "--run", name, "-o", f"{name}.onnx", *more)
        assert done.code == 0, done.err
    return tmp_path


def entries(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_what_is_shown_is_what_the_journal_says(run, trained):
    outcome = run("report", "a", "b", "--format", "json")

    found = json.loads(outcome.out)
    jsonschema.validate(found, schema_named("runs"))
    a, b = found["runs"]
    steps = [e for e in entries(trained / "a") if "eval" not in e]
    assert a["curves"]["loss"] == [[e["step"], e["loss"]] for e in steps]
    assert a["curves"]["learning rate"] == [[e["step"], e["lr"]] for e in steps]
    evals = [e for e in entries(trained / "a") if "eval" in e]
    for name in ("loss", "accuracy"):
        assert a["curves"][f"evaluated {name}"] == [[e["step"], e["eval"][name]] for e in evals]
    assert (a["steps"], a["epochs"], a["skipped"]) == (12, 2, 0)
    assert b["skipped"] == sum(e.get("skipped", False) for e in entries(trained / "b")) > 0


@pytest.mark.usefixtures("trained")
def test_curves_are_drawn(run):
    one, two = run("report", "a"), run("report", "a", "b")

    assert one.code == two.code == 0
    assert re.search(r"^ a +12 +2 +\d", one.out, re.MULTILINE)
    assert "\n loss\n" in one.out
    assert "\n evaluated accuracy\n" in one.out
    assert "\n learning rate\n" not in one.out  # it never changes
    assert "\n b: learning rate\n" in two.out
    assert "b: " in two.out
    assert "steps were skipped by the loss scale" in two.out
    assert max(map(len, one.out.splitlines())) <= 80
    assert run("report", "a", "--format", "csv").out.startswith("run,curve,step,value\na,loss,1,")
    assert run("report", "a", "--format", "markdown").out.startswith("| run | steps |")


def test_a_page_is_the_same_each_time_and_never_written_over(run, trained):
    first = run("report", "a", "b", "--html", "a.html")
    text = (trained / "a.html").read_text()
    again = run("report", "a", "b", "--html", "a.html")

    assert first.code == 0
    assert "wrote a.html" in first.out
    assert again.code == 2
    assert "a.html exists" in again.err
    assert run("report", "a", "b", "--html", "b.html", "--format", "json").code == 0
    assert (trained / "b.html").read_text() == text
    assert text.count('role="img"') == 4  # loss, rate, two metrics; the scale stays as it is
    assert "<script" not in text
    assert " style=" not in text


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["empty"], "empty: no training is there, and no model: it has neither metrics.jsonl"),
        (["a", "net.onnx"], "net.onnx is no folder, but a is: report trainings or models"),
        (["a", "--by", "op"], "--by is of models, and a is a folder: leave it out"),
        (["a", "--batch", "3"], "--batch is of models, and a is a folder: leave it out"),
        (["bad"], "line 2 is no JSON"),
        (["odd"], "line 1 is no JSON object"),
    ],
)
def test_what_cannot_be_reported_is_one_line(run, trained, arguments, said):
    for name, text in (("empty", None), ("bad", '{"step": 1}\nx\n'), ("odd", "[1]\n")):
        (trained / name).mkdir()
        if text is not None:
            (trained / name / "metrics.jsonl").write_text(text)
    outcome = run("report", *arguments)

    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("gradtool: ")
    assert outcome.err.count("\n") == 1
    assert said in outcome.err


HOSTILE = [
    {"step": 1, "epoch": 0, "loss": None, "lr": 1e-3}, {"step": 2, "loss": 1e308, "lr": True},
    {"step": "3", "loss": 1}, {"eval": {"loss": 1}}, {"step": 4, "eval": {"<b>\x1b": 1e-300}},
    {"step": 5, "loss": -1e308, "epoch": "x"}, {"step": 10**30, "loss": 0},
]  # fmt: skip


@pytest.mark.parametrize("count", range(len(HOSTILE) + 1))
def test_any_journal_has_a_page(count):
    page = learning_page([Run.of("</style><script>alert(1)</script>", HOSTILE[:count])])

    assert "<script" not in page
    assert "\x1b" not in page
    assert "<b>" not in page
    assert "nan" not in page.lower().replace("names", "")


def test_tables_of_counts_are_by_the_names_of_classes(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = examples(30)
    (tmp_path / "net.onnx").write_bytes(proto().SerializeToString())
    names = ["a blue one", "green", "[red]"]
    rows = [
        ",".join([*map(str, x), names[n]])
        for x, n in zip(data["x"], data["labels"] % 3, strict=True)
    ]
    header = ",".join([*(f"f{n}" for n in range(data["x"].shape[1])), "kind"])
    (tmp_path / "t.csv").write_text("\n".join([header, *rows]) + "\n")
    given = "--data t.csv --map x=f* --map labels=kind --categories kind --batch 10 --split 30%"
    trained = run("train", "net.onnx", *given.split(), "--metric", "confusion")
    told = run("report", "net.train")
    page = run("report", "net.train", "--html", "page.html")

    assert trained.code == told.code == page.code == 0, trained.err + told.err + page.err
    for text in (trained.out, told.out):
        found = [
            line.strip() for line in text.splitlines() if line.strip().startswith(tuple(names))
        ]
        assert [line.split("  ")[0] for line in found] == sorted(names)
    assert "[red]" in (tmp_path / "page.html").read_text()
    (tmp_path / "net.train" / "classes.json").write_text('{"labels": 3}')
    assert run("report", "net.train").code == 2
