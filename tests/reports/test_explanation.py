"""Facts about a value, in words and for machines."""

from __future__ import annotations

import dataclasses
import json

import pytest

from gradtool.planning.recompute.decision import UNREAD
from gradtool.planning.recompute.mirror import Why
from gradtool.planning.recompute.result import Work
from gradtool.planning.recompute.value_facts import Again, Facts, Place, Reader
from gradtool.reports import explanation

FACTS = Facts(
    value="relu",
    storage="relu",
    kind="activation",
    region="activations",
    bytes=4096,
    producer="Relu_1",
    op="Relu",
    stage="forward",
    born=4,
    last=20,
    readers=(Reader("Conv_2", "Conv", "forward", 5), Reader("Conv_2/grad", "Mul", "backward", 20)),
    peak_step="Conv_9/dw",
    at_peak=True,
    mirrored=True,
    why=Why.CHEAPER,
    applied=True,
    again=Again(("Relu_1",), Work(1000, 0), (), 0),
    obstacle=None,
)


def said(**changes):
    return explanation.lines(dataclasses.replace(FACTS, **changes))


def test_all_that_is_known_is_a_line_each_and_steps_count_from_one():
    assert said() == [
        "relu: activation, 4.00 KiB, computed by Relu 'Relu_1' (forward)",
        " alive from step 5 to step 21; it is alive at the peak of keeping everything (Conv_9/dw)",
        " read by Conv 'Conv_2' (forward, step 6)",
        " read by Mul 'Conv_2/grad' (backward, step 21)",
        f" computed again in backward: {FACTS.why.value}; applied",
        " computing it again would run 1 step, 1000 FLOPs: Relu_1",
    ]


def test_what_is_always_alive_has_no_life():
    lines = said(
        kind="parameter", region="parameters", producer=None, op=None, stage=None,
        born=None, last=None, mirrored=None, why=None, again=None,
        obstacle="no step computes it: it is always alive",
    )  # fmt: skip

    assert lines[0] == "relu: parameter, 4.00 KiB, always alive"
    assert lines[-1] == " computing it again: no step computes it: it is always alive"
    assert not any("alive from" in line for line in lines)


def test_a_view_names_the_storage():
    assert said(value="flat")[1] == " it is a window on relu, whose bytes these are"


@pytest.mark.parametrize("why", Why)
def test_every_reason_to_keep_a_value_is_said(why):
    assert f" kept: {why.value}" in said(mirrored=False, why=why)


def test_a_decision_that_did_not_pay_was_not_applied():
    assert any(line.endswith("; not applied, as that would not lower the peak")
               for line in said(applied=False))  # fmt: skip


def test_nobody_reads_it():
    assert " nobody reads it" in said(readers=())


def test_long_lists_are_cut_and_counted():
    readers = tuple(Reader(f"r{i}", "Mul", "backward", i) for i in range(40))
    again = Again(
        tuple(f"s{i}" for i in range(40)), Work(9, 3), tuple(f"h{i}" for i in range(2)), 64
    )
    lines = said(readers=readers, again=again)

    assert sum(line.startswith(" read by Mul ") for line in lines) == explanation.MOST
    assert " read by 28 more" in lines
    assert lines[-2].endswith("s11 and 28 more")
    assert "9 FLOPs and 3 steps of unknown cost" in lines[-2]
    assert lines[-1] == " and keep h0, h1 (64 B)"


def test_machines_get_the_same_and_count_from_zero():
    found = json.loads(json.dumps(explanation.document(FACTS)))

    assert (found["value"], found["born"]) == ("relu", 4)
    assert found["why"] == FACTS.why.value
    assert found["readers"][0] == {"step": "Conv_2", "op": "Conv", "stage": "forward", "index": 5}
    assert found["again"]["work"] == {"flops": 1000, "unknown": 0}


def test_a_workspace_is_of_its_step_and_nobody_reads_it():
    lines = said(kind=None, region="workspace", readers=(), again=None, why=None)

    assert lines[0] == "relu: workspace, 4.00 KiB, of Relu 'Relu_1' (forward)"
    assert not any("read" in line for line in lines)


def test_an_instance_and_a_window_name_what_they_are_of():
    instance = said(value="relu_mirror", instance_of="relu")
    window = said(value="flat_mirror", instance_of="flat")

    assert instance[1] == " it is relu, which a plan computes again"
    assert not any("window" in line for line in instance)
    assert window[1:3] == [
        " it is flat, which a plan computes again",
        " it is a window on relu, whose bytes these are",
    ]


def test_a_place_says_who_is_in_it_and_what_reports_call_it():
    place = Place("relu", 3, 30, ("bn", "drelu"), at_peak=True)
    own, other = (said(storage=name, value=name, shared=place) for name in ("relu", "bn"))

    assert own[2] == (
        " its place is held from step 4 to step 31, in turn with bn, drelu; reports call it relu"
    )
    assert " in turn with relu, drelu; reports call it relu" in other[2]


def test_the_region_is_what_reports_count_it_to():
    assert said(region="backward temporaries")[0].startswith("relu: backward temporary, 4.00 KiB")
    assert said(region=None, kind="host")[0].startswith("relu: host, ")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"through": "y"}, " its step runs again in backward, for y: "),
        ({"through": "y", "applied": False}, " its step may run again in backward, for y: "),
        ({"through": "y", "mirrored": False}, " kept for y, which is computed again from it: "),
        ({"applied": False}, " may be computed again in backward: "),
    ],
)
def test_what_a_decision_is_for_is_said(changes, line):
    assert any(each.startswith(line) for each in said(**changes))


def test_a_decision_about_what_backward_does_not_read_is_none():
    for mirrored in (True, False):
        lines = said(mirrored=mirrored, again=None, obstacle=UNREAD)

        assert lines[-1] == f" computing it again: {UNREAD}"
        assert not any("kept" in line or "in backward" in line for line in lines)
