"""Traces of a training: a process a rank, whose sums lie over the nodes that cover them."""

import json
from itertools import pairwise

import numpy as np
import onnx
import pytest
import stage_cases
from forked_ranks import on_ranks, supported
from rank_cases import DATA, drawn, trained
from table_cases import drawn as drawn_tables

import gradtool as gt
from gradtool.training.timeline import KEPT, LANES, Timeline, timeline_trace

ROUND = 0.002  # microseconds that rounding adds up to


def spans_of(work, ranks=2):
    def on_rank(group):
        timeline = Timeline(group)
        work(group, timeline)
        return timeline.gathered(group)

    return on_ranks(ranks, on_rank)[0]


def train(model, data, options, group, timeline):
    with gt.Trainer(model, **options) as trainer:
        trainer.fit(data, group=group, timeline=timeline)


@pytest.mark.sample(4)
@supported
@pytest.mark.parametrize("case", range(4))
def test_each_rank_has_its_nodes_its_sums_and_its_waiting(case):
    model, options, _ = drawn(2, case)
    options |= {"steps": 8, "shard": ["none", "optimizer", "gradients"][case % 3]}
    ranks = spans_of(lambda *given: train(model, DATA, options, *given))
    events = json.loads(timeline_trace(ranks, "net.onnx"))["traceEvents"]

    for pid in (1, 2):
        ours = [e for e in events if e["pid"] == pid]
        slices = [e for e in ours if e["ph"] == "X"]
        steps = [e for e in slices if e["tid"] == 1]
        assert [e["name"] for e in steps] == [f"step {n}" for n in range(9 - KEPT, 9)]
        for tid in range(1, len(LANES) + 1):
            lane = sorted((e for e in slices if e["tid"] == tid), key=lambda e: e["ts"])
            for one, other in pairwise(lane):
                end = one["ts"] + one["dur"]
                inside = other["ts"] + other["dur"] <= end + ROUND
                assert other["ts"] >= end - ROUND or inside
        kinds = {e["cat"] for e in slices}
        assert {"forward", "backward", "update", "waits"} <= kinds
        begun = {e["id"]: e["ts"] for e in ours if e["ph"] == "b"}
        ended = {e["id"]: e["ts"] for e in ours if e["ph"] == "e"}
        assert begun.keys() == ended.keys()
        assert all(begun[each] <= ended[each] for each in begun)
        if options["shard"] != "gradients":
            names = {e["name"] for e in ours if e["ph"] == "b"}
            assert any(name.startswith("sum of ") for name in names)
        else:
            assert "together" in kinds


@supported
def test_what_rows_wait_for_is_drawn():
    model, data, options, several = drawn_tables(0)
    how = options | several | {"steps": 3}
    ranks = spans_of(lambda *given: train(gt.load(model), data, how, *given))

    for spans in ranks:
        assert {"deliver", "gather"} <= {span.name for span in spans if span.lane == "waits"}
        assert any("RanksRows" in s.name for s in spans if s.kind == "together")


def test_what_is_trained_is_the_same_with_a_trace(tmp_path, run):
    model, _, _, _ = drawn_tables(0)
    _, data, _, _ = drawn_tables(0)
    onnx.save(model, tmp_path / "net.onnx")
    np.savez(tmp_path / "data.npz", **data)
    written = []
    for name, more in (("plain", []), ("traced", ["--trace", str(tmp_path / "t.json")])):
        out = run(
            "train", tmp_path / "net.onnx", "--data", tmp_path / "data.npz", "--steps", "4",
            "--run", tmp_path / name, "-o", tmp_path / f"{name}.onnx", *more,
        )  # fmt: skip
        assert out.code == 0, out.err
        written.append((tmp_path / f"{name}.onnx").read_bytes())

    assert written[0] == written[1]
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert {e["pid"] for e in events} == {1}
    again = run("train", tmp_path / "net.onnx", "--data", tmp_path / "data.npz", "--steps", "4",
                "--run", tmp_path / "third", "-o", tmp_path / "third.onnx", *more)  # fmt: skip
    assert again.code == 2
    assert "t.json" in again.err


@pytest.mark.exhaustive
@supported
@pytest.mark.parametrize(("ranks", "stages", "case"), [(2, 2, 0), (4, 2, 1)])
def test_stages_show_what_they_hand_over_and_train_as_before(ranks, stages, case):
    def work(group, timeline):
        model, options, _ = stage_cases.drawn(ranks, stages, case)
        return trained(model, options | {"steps": 3}, group, timeline=timeline)

    def on_rank(group):
        timeline = Timeline(group)
        found = work(group, timeline)
        return timeline.gathered(group), found, work(group, None)

    told, traced, plain = on_ranks(ranks, on_rank)[0]
    events = json.loads(timeline_trace(told, "net.onnx"))["traceEvents"]

    assert traced[:2] == plain[:2]
    assert all(plain[2][name].tobytes() == array.tobytes() for name, array in traced[2].items())
    for pid in range(1, ranks + 1):
        ours = [e for e in events if e["pid"] == pid]
        assert {"forward", "backward", "together"} <= {e["cat"] for e in ours if e["ph"] == "X"}
        assert any(e["name"].startswith("hand of ") for e in ours if e["ph"] == "b")
        assert any(e["name"] == "receive" for e in ours if e["ph"] == "X")
