import dataclasses
import json

import pytest
from pages import HOSTILE, hostile_page, tiny_page

from gradtool.exec.measure import Measurement
from gradtool.exec.step_costs import StepCosts
from gradtool.program.roofline import Reach
from gradtool.reports.trace import STAGES, by_region, measured_trace, planned_trace

PLANS = [row.plan for row in tiny_page().rows]


def events(text, kind, pid=1):
    return [e for e in json.loads(text)["traceEvents"] if e["ph"] == kind and e["pid"] == pid]


@pytest.fixture
def costs():
    plan = PLANS[0]
    steps = len(plan.program.steps)
    seconds = tuple((n + 1) * 1e-6 for n in range(steps))
    return StepCosts(plan, seconds, tuple(range(steps)), repeats=3)


def test_each_step_of_each_plan_is_a_slice_on_the_thread_of_its_stage():
    text = planned_trace(PLANS, "tiny.onnx")

    for pid, plan in enumerate(PLANS, 1):
        slices = events(text, "X", pid)

        assert [e["name"] for e in slices] == [s.name for s in plan.program.steps]
        assert [STAGES[e["tid"] - 1] for e in slices] == [s.stage for s in plan.program.steps]
        assert [e["ts"] for e in slices] == list(range(len(slices)))
        assert [e["args"]["step"] for e in slices] == list(range(1, len(slices) + 1))


def test_counters_hold_what_is_live_at_each_step():
    text = planned_trace(PLANS, "tiny.onnx")

    for pid, plan in enumerate(PLANS, 1):
        counters = events(text, "C", pid)
        for step in range(len(plan.program.steps)):
            held = [e["args"] for e in counters if e["ts"] <= step][-1]

            assert {name: size for name, size in held.items() if size} == plan.regions(step)


def test_processes_and_threads_have_names():
    named = events(planned_trace(PLANS, "tiny.onnx"), "M", 2)

    assert named[0]["args"]["name"] == "mirror: planned, 1 µs is one step"
    used = {step.stage for step in PLANS[1].program.steps}
    assert [e["args"]["name"] for e in named[1:]] == [stage for stage in STAGES if stage in used]


def test_measured_steps_are_as_long_as_they_took(costs):
    slices = events(measured_trace(costs, "tiny.onnx"), "X")

    # the steps take 1, 2, 3, … µs: each begins where the sum of those before ends
    assert [e["dur"] for e in slices] == [n + 1 for n in range(len(slices))]
    assert [e["ts"] for e in slices] == [n * (n + 1) / 2 for n in range(len(slices))]


def test_bytes_beside_the_arena_are_a_counter_of_their_own(costs):
    counters = events(measured_trace(costs, "tiny.onnx"), "C")
    beside = [e["args"]["bytes"] for e in counters if e["name"].startswith("beside")]

    assert beside == list(costs.outside)


@pytest.mark.parametrize("flops", [1e6, 1e9, 1e12])
@pytest.mark.parametrize("moved", [1e6, 1e9, 1e12])
def test_a_measured_step_says_how_near_it_comes_to_the_roof(costs, flops, moved):
    reached = dataclasses.replace(costs, reach=Reach(flops, moved))
    text = measured_trace(reached, "tiny.onnx")

    assert json.loads(text)["otherData"]["product_gflops_per_second"] == round(flops / 1e9, 1)
    for slice_, step in zip(events(text, "X"), costs.plan.program.steps, strict=True):
        said, seconds = slice_["args"], slice_["dur"] / 1e6
        if not (step.flops or step.moved):
            assert "roof" not in said
            continue
        needed = {"product": (step.flops or 0) / flops, "copy": step.moved / moved}

        assert needed[said["roof"]] == max(needed.values())
        assert said["of_roof_percent"] == round(100 * max(needed.values()) / seconds, 1)
        assert said["GB/s"] == round(step.moved / seconds / 1e9, 2)


def test_steps_of_a_device_whose_reach_is_unknown_say_nothing_of_it(costs):
    assert all("roof" not in e["args"] for e in events(measured_trace(costs, "tiny.onnx"), "X"))


def test_a_measurement_stands_beside_the_events(costs):
    measurement = Measurement(100, 60, 30, 0, 0, 0, 1.0)

    facts = json.loads(measured_trace(costs, "tiny.onnx", measurement))["otherData"]

    assert facts["planned_bytes"] == 100
    assert facts["measured_bytes"] == 90
    assert facts["arena_high_water_bytes"] == 60


def test_regions_add_up_to_what_the_plan_says():
    for plan in PLANS:
        found = by_region(plan)
        for step in range(len(plan.program.steps)):
            sizes = {region: sizes[step] for region, sizes in found.items() if sizes[step]}

            assert sizes == plan.regions(step)


def test_hostile_names_are_visible_and_of_bounded_length():
    text = planned_trace([hostile_page().rows[0].plan], HOSTILE[-3])

    assert text.isascii()
    names = [e["name"] for e in events(text, "X")]
    assert r"\x1b[31mred\x1b[0m" in names
    assert max(map(len, names)) <= 400
    assert len(json.loads(text)["otherData"]["model"]) <= 400
