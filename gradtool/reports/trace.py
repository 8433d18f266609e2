"""Traces for Perfetto and chrome://tracing: a slice a node, and memory as counters.

A plan is a process. Its threads are the stages of the step: forward, backward, recompute, update.

Source: Trace Event Format (Google, "Trace Event Format"): events X (complete), C (counter) and
M (metadata); times are in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from gradtool.planning.plan import ALWAYS_LIVE, TEMPORARIES
from gradtool.program.roofline import rate
from gradtool.reports.page_data import shown
from gradtool.reports.plans import TITLES

if TYPE_CHECKING:
    from gradtool.exec.measure import Measurement
    from gradtool.exec.step_costs import StepCosts
    from gradtool.planning.plan import Plan
    from gradtool.program import Program, Step
    from gradtool.program.roofline import Reach

Event = dict[str, Any]

STAGES = ("forward", "backward", "recompute", "update")
PLANNED = 1.0  # microseconds that a step is drawn with where none was measured
REGIONS = (*ALWAYS_LIVE, "gradients", "outputs", "activations", TEMPORARIES, "workspace")


def planned_trace(plans: Sequence[Plan], model: str) -> str:
    """The plans of a model as JSON: nothing was run, so each step is drawn as a microsecond."""
    events: list[Event] = []
    for pid, plan in enumerate(plans, 1):
        durations = [PLANNED] * len(plan.program.steps)
        title = f"{shown(TITLES.get(plan.name, plan.name))}: planned, 1 µs is one step"
        events += _process(pid, title, plan)
        events += _slices(pid, plan, durations)
        events += _counters(pid, "planned bytes", by_region(plan), durations)
    return trace_text(events, {"model": shown(model), "time": "one step is drawn as 1 µs"})


def measured_trace(costs: StepCosts, model: str, measurement: Measurement | None = None) -> str:
    """One run as JSON: steps as long as they took, planned bytes, and those beside the arena."""
    plan = costs.plan
    durations = [seconds * 1e6 for seconds in costs.seconds]
    events = _process(1, f"measured, median of {costs.repeats} runs", plan)
    events += _slices(1, plan, durations, costs.reach)
    events += _counters(1, "planned bytes", by_region(plan), durations)
    beside = {"bytes": list(costs.outside)}
    events += _counters(1, "beside the arena, measured", beside, durations)
    facts: dict[str, Any] = {"model": shown(model), "time": "measured"}
    if costs.reach is not None:
        facts |= {
            "product_gflops_per_second": round(costs.reach.flops / 1e9, 1),
            "copy_gbytes_per_second": round(costs.reach.bytes / 1e9, 1),
        }
    if measurement is not None:
        facts |= {
            "planned_bytes": measurement.planned,
            "measured_bytes": measurement.peak,
            "arena_high_water_bytes": measurement.high_water,
            "outside_arena_bytes": measurement.outside,
        }
    return trace_text(events, facts)


def by_region(plan: Plan) -> dict[str, list[int]]:
    """Bytes live at each step, for each nonempty region."""
    from gradtool.planning.packing import load_profile

    steps = len(plan.program.steps)
    held = {r: [span for span in plan.spans if span.region == r] for r in REGIONS}
    found = {r: load_profile(spans, steps).tolist()[:steps] for r, spans in held.items()}
    return {region: sizes for region, sizes in found.items() if any(sizes)}


def _process(pid: int, title: str, plan: Plan) -> list[Event]:
    used = {step.stage for step in plan.program.steps}
    names = [(0, "process_name", title)]
    names += [(tid, "thread_name", s) for tid, s in enumerate(STAGES, 1) if s in used]
    return [
        {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}
        for tid, kind, name in names
    ]


def _slices(
    pid: int, plan: Plan, durations: Sequence[float], reach: Reach | None = None
) -> Iterator[Event]:
    program = plan.program
    for number, (step, start) in enumerate(zip(program.steps, _starts(durations), strict=True)):
        yield {
            "ph": "X",
            "name": shown(step.name or step.op),
            "cat": step.stage,
            "pid": pid,
            "tid": STAGES.index(step.stage) + 1,
            "ts": start,
            "dur": round(durations[number], 3),
            "args": _facts(program, step, number) | _rates(step, durations[number], reach),
        }


def _facts(program: Program, step: Step, number: int) -> dict[str, Any]:
    """The facts of a step: people count from 1."""
    facts = {
        "step": number + 1,
        "op": shown(step.op),
        "writes": ", ".join(shown(program.values[v].name) for v in step.writes),
    }
    if step.source and step.source != step.name:
        facts["source"] = shown(step.source)
    if step.flops is not None:
        facts["flops"] = int(step.flops)
    return facts


def _rates(step: Step, microseconds: float, reach: Reach | None) -> dict[str, Any]:
    """The rates of a step, and its share of the roof for its operations and bytes."""
    found = reach and rate(step.flops, step.moved, microseconds / 1e6, reach)
    if not found:
        return {}
    return {
        "GFLOP/s": round(found.flops / 1e9, 2),
        "GB/s": round(found.bytes / 1e9, 2),
        "roof": found.roof,
        "of_roof_percent": round(100 * found.share, 1),
    }


def _counters(
    pid: int, name: str, sizes: Mapping[str, Sequence[int]], durations: Sequence[float]
) -> Iterator[Event]:
    """A counter event wherever a size changes."""
    before: dict[str, int] = {}
    for number, start in enumerate(_starts(durations)):
        now = {series: values[number] for series, values in sizes.items()}
        if now != before:
            yield {"ph": "C", "name": name, "pid": pid, "tid": 0, "ts": start, "args": now}
        before = now


def _starts(durations: Sequence[float]) -> list[float]:
    return [round(start, 3) for start in accumulate(durations, initial=0.0)][:-1]


def trace_text(events: Sequence[Event], facts: Mapping[str, Any]) -> str:
    """A trace as JSON, one event a line."""
    lines = ",\n".join(json.dumps(e, separators=(",", ":"), allow_nan=False) for e in events)
    rest = json.dumps(facts, sort_keys=True)
    return f'{{"displayTimeUnit":"ns","otherData":{rest},"traceEvents":[\n{lines}\n]}}\n'
