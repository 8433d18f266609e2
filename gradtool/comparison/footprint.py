"""The tensors and operators behind a plan, under the names that they have without it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from gradtool.comparison.metrics import Operator, Tensor

if TYPE_CHECKING:
    from gradtool.planning.plan import Buffer, Plan
    from gradtool.workloads.plans import Planned, Workload

MOST_TENSORS = 128
MOST_OPERATORS = 96
LONGEST = 160  # characters of a name
REGIONS = ("parameters", "state", "inputs", "gradients", "outputs")


def tensors_of(plan: Plan) -> tuple[dict[str, Tensor], int]:
    """The largest tensors by name, and how many are not among them.

    Instances of a tensor that is computed again are one; it is as large as its largest.
    """
    groups: dict[str, list[Buffer]] = {}
    for buffer in plan.buffers:
        groups.setdefault(name_of(plan, buffer), []).append(buffer)
    found = {name: _tensor(plan, buffers) for name, buffers in groups.items()}
    largest = sorted(found, key=lambda n: (-found[n].bytes, -found[n].held, n))[:MOST_TENSORS]
    return {short(name): found[name] for name in sorted(largest)}, len(found) - len(largest)


def name_of(plan: Plan, buffer: Buffer) -> str:
    """The name of a buffer's tensor where nothing is computed again."""
    step = plan.program.steps[buffer.first] if plan.program.steps else None
    if step is None or step.stage != "recompute":
        return buffer.name
    if not buffer.values:
        return buffer.name.replace(step.name, step.source, 1)
    return buffer.name.removesuffix(step.name.removeprefix(step.source))


def short(name: str) -> str:
    """A name of no more than `LONGEST` characters, still its own."""
    if len(name) <= LONGEST:
        return name
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    half = (LONGEST - len(mark) - 2) // 2
    return f"{name[:half]}~{mark}~{name[-half:]}"


def _tensor(plan: Plan, buffers: list[Buffer]) -> Tensor:
    first = buffers[0]
    steps = plan.program.steps
    spec = plan.program.values[first.values[0]].spec if first.values else None
    fixed = first.region in REGIONS[:3] or first.region == "constants"
    return Tensor(
        op="" if fixed or not steps else steps[first.first].op,
        region=first.region,
        shape=() if spec is None else tuple(int(size) for size in spec.shape),
        dtype="" if spec is None else spec.dtype.name,
        bytes=max(int(b.bytes) for b in buffers),
        held=sum(int(b.bytes) for b in buffers if b.first <= plan.peak_step <= b.last),
        again=0 if fixed else sum(steps[b.first].stage == "recompute" for b in buffers if steps),
    )


def operators_of(plan: Plan) -> dict[str, Operator]:
    """What each operator runs and holds; of very many, those that hold and compute most."""
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
    from gradtool.planning.plan import ALWAYS_LIVE

    for buffer in plan.live(plan.peak_step):
        if buffer.region not in ALWAYS_LIVE:
            yield plan.program.steps[buffer.first].op, int(buffer.bytes)


def region_peaks(plan: Plan) -> dict[str, int]:
    """The most that each region takes at any step, in bytes."""
    from gradtool.planning.packing import load_profile

    steps = len(plan.program.steps)
    held = {r: [b for b in plan.buffers if b.region == r] for r in REGIONS}
    return {r: int(load_profile(buffers, steps).max()) for r, buffers in held.items()}


def why_kept(work: Workload, found: Planned, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Why tensors of forward are not computed again: what mirroring decided, or what forbids it."""
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
