"""The tensors and operators behind a plan, under their names without recompute."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from gradtool.comparison.metrics import Operator, Tensor

if TYPE_CHECKING:
    from gradtool.planning.plan import Buffer, Plan, Region
    from gradtool.program import Step
    from gradtool.workloads.planned import Planned
    from gradtool.workloads.workload import Workload

MOST_TENSORS = 128
MOST_OPERATORS = 96
LONGEST = 160  # characters of a name
REGIONS: Mapping[str, Region] = MappingProxyType(
    {
        "parameters": "parameters",
        "state": "state",
        "inputs": "inputs",
        "temporaries": "backward temporaries",
        "gradients": "gradients",
        "outputs": "outputs",
    }
)


def all_tensors(plan: Plan) -> dict[str, Tensor]:
    """Every tensor by its name without recompute.

    Instances of a recomputed tensor are one; it is as large as its largest.
    """
    groups: dict[str, list[Buffer]] = {}
    for buffer in plan.buffers:
        groups.setdefault(name_of(plan, buffer), []).append(buffer)
    again = _repeats(plan)
    return {name: _tensor(plan, found, again[name]) for name, found in groups.items()}


def tensors_of(plan: Plan) -> tuple[dict[str, Tensor], int]:
    """The largest tensors by name, and how many are not among them."""
    found = all_tensors(plan)
    largest = sorted(found, key=lambda n: (-found[n].bytes, -found[n].held, n))[:MOST_TENSORS]
    listed = {short(name): found[name] for name in sorted(largest)}
    listed = {n: replace(t, also=tuple(map(short, t.also))) for n, t in listed.items()}
    return listed, len(found) - len(largest)


def name_of(plan: Plan, buffer: Buffer) -> str:
    """The name of a buffer's tensor without recompute."""
    maker = plan.maker(buffer)
    if maker is None:
        return buffer.name
    if not buffer.values:
        return buffer.name.replace(maker.name, _original(maker), 1)
    return _unsuffixed(buffer.name, maker)


def first_name(plan: Plan, value: int) -> str:
    """The name of the first instance of a value."""
    name, maker = plan.program.values[value].name, plan.makers.get(value)
    return name if maker is None else _unsuffixed(name, maker)


def _original(step: Step) -> str:
    """The name of a step's original, else its own."""
    return step.source if step.stage == "recompute" else step.name


def _unsuffixed(value: str, maker: Step) -> str:
    return value.removesuffix(maker.name.removeprefix(_original(maker)))


def _repeats(plan: Plan) -> Counter[str]:
    """The number of recomputations of tensors and workspaces, by name."""
    from gradtool.planning.liveness import workspace_name

    found = Counter[str]()
    for step in plan.program.steps:
        if step.stage == "recompute":
            found.update(first_name(plan, v) for v in step.writes)
            found[workspace_name(_original(step))] += 1
    return found


def short(name: str) -> str:
    """A name of no more than `LONGEST` characters, still its own."""
    if len(name) <= LONGEST:
        return name
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    half = (LONGEST - len(mark) - 2) // 2
    return f"{name[:half]}~{mark}~{name[-half:]}"


def _tensor(plan: Plan, buffers: list[Buffer], again: int) -> Tensor:
    first = buffers[0]
    spec, maker = plan.spec(first), plan.maker(first)
    also = (first_name(plan, v) for b in buffers for v in plan.also(b))
    return Tensor(
        op="" if maker is None else maker.op,
        region=first.region,
        shape=() if spec is None else tuple(int(size) for size in spec.shape),
        dtype="" if spec is None else spec.dtype.name,
        bytes=max(int(b.bytes) for b in buffers),
        held=sum(int(b.bytes) for b in buffers if b.first <= plan.peak_step <= b.last),
        again=again,
        also=tuple(dict.fromkeys(also)),
    )


def operators_of(plan: Plan) -> dict[str, Operator]:
    """The runs, work and bytes of each operator; of very many, the largest."""
    counts: dict[str, list[int]] = {}
    for step in plan.program.steps:
        again = step.stage == "recompute"
        row = counts.setdefault(step.op, [0, 0, 0, 0, 0])
        row[again] += 1
        row[2] += step.flops or 0
        row[3] += (step.flops or 0) if again else 0
    for name, size in _held(plan):
        counts[name][4] += size
    largest = sorted(counts, key=lambda op: (-counts[op][4], -counts[op][2], op))[:MOST_OPERATORS]
    return {short(op): Operator(*counts[op]) for op in sorted(largest)}


def _held(plan: Plan) -> Iterable[tuple[str, int]]:
    for buffer in plan.live(plan.peak_step):
        if (maker := plan.maker(buffer)) is not None:
            yield maker.op, int(buffer.bytes)


def region_peaks(plan: Plan) -> dict[str, int]:
    """The peak of each region, in bytes, by metric."""
    from gradtool.planning.packing import load_profile

    steps = len(plan.program.steps)
    held = {m: [span for span in plan.spans if span.region == r] for m, r in REGIONS.items()}
    return {m: int(load_profile(spans, steps).max()) for m, spans in held.items()}


def why_kept(work: Workload, found: Planned, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Why tensors of forward are not recomputed: a decision of mirroring, or an obstacle."""
    from gradtool.planning.recompute.mirror import Why

    choices = {} if found.decision is None else {c.step: c for c in found.decision.choices}
    reasons: dict[str, str] = {}
    for step in work.program.steps:
        if step.stage != "forward":
            continue
        choice = choices.get(step.name)
        why = None
        if not step.recomputable:
            why = Why.ONCE.value
        elif choice is not None:
            why = "that would lower no peak" if choice.mirrored else choice.why.value
        for value in step.writes if why else ():
            name = short(work.program.values[value].name)
            if name in tensors and not tensors[name].again:
                reasons[name] = str(why)
    return reasons
