"""`recompute --frontier` and `--max-batch`: tables that write no model."""

import csv
import json

import pytest
from conftest import build
from deep import deep


@pytest.fixture
def net(model):
    return model(deep("batch"), "deep.onnx")


def test_the_frontier_is_a_table_and_a_plot(run, net, tmp_path):
    outcome = run("recompute", net, "--batch", "256", "--frontier", "--points", "4")

    assert outcome.code == 0, outcome.err
    assert "× baseline" in outcome.out
    assert "extra work by budget (# proven necessary, + gap)" in outcome.out
    assert not list(tmp_path.glob("*recompute*"))


@pytest.mark.exhaustive
def test_the_frontier_for_machines(run, net):
    assert run("grad", net, "--batch", "256").code == 0
    flags = ("--frontier", "--points", "4", "--optimizer", "adam")
    found, updated = (
        json.loads(run("recompute", m, *flags, *size, "--format", "json").out)
        for m, size in (("deep.grad.onnx", ()), (net, ("--batch", "256")))
    )
    rows = list(
        csv.reader(run("recompute", "deep.grad.onnx", *flags, "--format", "csv").out.splitlines())
    )

    assert found["schema_version"] == 1
    assert found["optimizer_bytes"] > 0
    assert updated["optimizer_bytes"] == 0  # the state is in the graph
    assert [p["extra_work"] for p in found["points"]] == sorted(
        (p["extra_work"] for p in found["points"]), reverse=True
    )
    assert rows[0][:3] == ["budget", "× baseline", "peak"]
    assert len(rows) == 1 + len(found["points"])


@pytest.mark.exhaustive
def test_the_largest_batch_by_plan(run, net):
    flags = ("--max-batch", "--memory", "64KiB")
    found = json.loads(run("recompute", net, *flags, "--format", "json").out)
    outcome = run("recompute", net, *flags, "--optimizer", "adam")

    assert list(found["max_batch"]) == ["keep", "mirror", "sqrt", "optimal"]
    assert found["max_batch"]["keep"] < found["max_batch"]["optimal"]
    assert "max batch @ 64.0 KiB" in outcome.out
    assert "the state of adam is counted" in outcome.err
    assert "assumed" not in outcome.err


@pytest.mark.parametrize("flag", [("--dim", "batch=2"), ("--shape", "x=2x16")])
def test_the_batch_that_is_looked_for_is_not_given(run, net, flag):
    outcome = run("recompute", net, "--max-batch", "--memory", "64KiB", *flag)

    assert outcome.code == 2
    assert f"--max-batch looks for batch: leave out {' '.join(flag)}" in outcome.err


def test_a_size_beside_the_largest_batch_is_said_to_be_assumed(run, model):
    path = model(
        build("n (float[batch, length] x) => (float y) { y = ReduceSum <keepdims=0> (x) }")
    )

    outcome = run("recompute", path, "--max-batch", "--memory", "64KiB")

    assert "assumed length=1 (give --dim length=N)" in outcome.err
