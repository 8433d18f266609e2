"""The memory of a plan, as rows of numbers.

People count steps from 1 and read IEC units; JSON counts from 0, as `Plan` does, and holds bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, TypedDict

from gradtool.operators.kernel_sets import AUTO, LIBRARY, NONE
from gradtool.planning.breakdown import FRAGMENTATION, module
from gradtool.planning.plan import TEMPORARIES, Region
from gradtool.reports.savings import SavingRecord
from gradtool.text.json_schema import Count
from gradtool.text.layout import Column
from gradtool.text.names import escape
from gradtool.text.table import Table
from gradtool.text.units import format_bytes, format_percent
from gradtool.workloads.names import FLAGS, KERNELS, chosen
from gradtool.workloads.records import Dims, PlannedFor

if TYPE_CHECKING:
    from gradtool.operators.kernel_sets import Kernels
    from gradtool.planning.plan import Buffer, Plan

BESIDE: tuple[Region, ...] = ("activations", TEMPORARIES, "parameters", "gradients")
_SPECIAL: tuple[Kernels, ...] = (*LIBRARY[::-1], "cupy", NONE)
SHORT: Mapping[Region, str] = {TEMPORARIES: "temporaries"}  # where there is little room
BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = " .,-=+*#"


class AliveRecord(TypedDict):
    """A buffer, from its first step to its last; a workspace has neither shape nor dtype."""

    name: Annotated[str, "The value that lies there at the peak step."]
    also: Annotated[list[str], "Other values that lie in its place, before or after."]
    op: Annotated[str | None, "Null where no step computes it."]
    module: str | None
    region: Region
    shape: list[Count] | None
    dtype: str | None
    bytes: Count
    first: Count
    last: Count


class PlanRecord(TypedDict):
    """A plan: sizes are integers in bytes, steps count from 0."""

    model: str
    plan: str
    kernels: PlannedFor
    dims: Dims
    peak_bytes: Annotated[Count, "The arena: all that a step needs."]
    load_bytes: Annotated[Count, "The most that is alive at once."]
    adapted_bytes: Annotated[Count, "The largest temporary outside of the arena."]
    total_bytes: Annotated[Count, "The arena and the largest temporary outside of it."]
    mapped_bytes: Annotated[
        Count, "Weights that are read where they lie in the model's data file, beside all of that."
    ]
    peak_step: Annotated[Count, "Counted from 0."]
    steps: Count
    regions: Annotated[
        dict[str, Count],
        "Bytes at the peak step by region; with gap_bytes they add up to peak_bytes.",
    ]
    gap_bytes: Count
    alive: Annotated[list[AliveRecord], "Everything held at the peak step, largest first."]


class ModelRecord(PlanRecord):
    """Memory of a model without recompute."""

    assumed: Annotated[dict[str, int], "Sizes that nobody gave."]
    unsized: Annotated[
        dict[str, int], "Results whose size depends on data, counted by operator: in no plan."
    ]
    savings: list[SavingRecord]


class ReportDocument(TypedDict):
    """Memory of models."""

    models: list[ModelRecord]


def footer(plans: Sequence[Plan]) -> str:
    """The omissions of plans; an optimizer's state only if one of them has no updates."""
    updating = all(any(s.stage == "update" for s in plan.program.steps) for plan in plans)
    return left_out({plan.program.kernels for plan in plans}, updating=updating)


def left_out(kernels: Collection[Kernels], *, updating: bool) -> str:
    """The omissions of plans for some kernels, and the way to hold them against a run."""
    found: Kernels | None = next((k for k in _SPECIAL if k in kernels), None)
    name: Kernels | None = "native" if found in LIBRARY else found
    what = "" if name is None else f" for {KERNELS[name]}"
    how = "" if found in (None, NONE, chosen(AUTO)) else f" {FLAGS[found]}"
    state = "" if updating else "optimiser state, "
    return (
        f"planned{what}, not measured (gradtool run{how} --measure).  "
        f"not counted: {state}CUDA context"
    )


FOOTER = left_out((), updating=False)


def by_region(plan: Plan) -> Table:
    """The regions of the arena at the peak step, largest first; their bytes add up to the peak.

    What is read where it lies in a file is in no arena: a row below.
    """
    parts = _parts(plan)
    rows = [(part, size) for part, size in parts.items() if size]
    share = max(plan.peak, 1)
    return Table(
        columns=(Column("region"), *Column.numbers("at peak", "share")),
        rows=tuple(
            (part, format_bytes(size), format_percent(size / share))
            for part, size in [*rows, ("peak", plan.peak)]
        )
        + ((("mapped, read-only", format_bytes(plan.mapped), ""),) if plan.mapped else ()),
        footer="\n".join([*_outside(plan), footer([plan])]),
    )


def alive_at_peak(plan: Plan, top: int | None = 12) -> Table:
    """The `top` largest buffers at the peak step, or all; `steps` is the first and the last."""
    buffers = _alive(plan)
    shown = buffers[:top]
    rest = buffers[len(shown) :]
    hidden = [f"and {len(rest)} more: {format_bytes(sum(b.bytes for b in rest))}"] if rest else []
    return Table(
        columns=(
            Column("tensor", kind="name"),
            Column("region"),
            *Column.numbers("shape"),
            Column("dtype"),
            *Column.numbers("bytes", "steps"),
        ),
        rows=tuple(_alive_row(plan, buffer) for buffer in shown),
        footer="\n".join([*hidden, footer([plan])]),
    )


def timeline(plan: Plan, width: int = 60, *, unicode: bool = True) -> str:
    """Live bytes from the first step to the last, and a line that marks the begin of backward.

    One block a step, or the largest of its steps where there are more than `width`. Heights
    count from zero.
    """
    from gradtool.planning.packing import load_profile

    steps = len(plan.program.steps)
    live = load_profile(plan.buffers, steps).tolist()[:steps]
    columns = min(width, len(live))
    starts = [column * len(live) // max(columns, 1) for column in range(columns + 1)]
    heights = [max(live[a:b]) for a, b in pairwise(starts)]
    blocks = BLOCKS if unicode else ASCII_BLOCKS
    top = max(heights, default=0)
    line = "".join(blocks[(len(blocks) * h - 1) // top if h else 0] for h in heights)

    stages = [step.stage == "forward" for step in plan.program.steps]
    if all(stages):
        return line
    begins = stages.index(False)
    column = sum(start <= begins for start in starts[:-1]) - 1
    label = f"backward from step {begins + 1}"
    before = len(label) < column
    return f"{line}\n" + (f"{label} ^".rjust(column + 1) if before else " " * column + f"^ {label}")


def summary(plan: Plan) -> str:
    """The peak in one line: its bytes, its step, and their regions."""
    steps = plan.program.steps
    where = "no steps"
    if steps:
        step = steps[plan.peak_step]
        name = escape(step.source or step.name or step.op)
        where = f"at step {plan.peak_step + 1}/{len(steps)} ({name} {step.stage})"
    parts = ", ".join(f"{part} {format_bytes(size)}" for part, size in _parts(plan).items() if size)
    line = f"peak {format_bytes(plan.peak)} {where}" + (f": {parts}" if parts else "")
    mapped = [f"mapped, read-only: {format_bytes(plan.mapped)}"] if plan.mapped else []
    return "; ".join([line, *mapped, *_outside(plan)])


def plans_table(plans: Sequence[Plan], names: Sequence[str]) -> Table:
    """Several models or plans side by side; activations and the rest are those at the peak step."""
    return Table(
        columns=(
            Column("model", kind="name"),
            *Column.numbers("peak", *(SHORT.get(region, region) for region in BESIDE)),
            *Column.numbers("steps"),
        ),
        rows=tuple(_plan_row(plan, name) for plan, name in zip(plans, names, strict=True)),
        footer=footer(plans),
    )


def plan_json(plan: Plan, model_name: str, dims: Mapping[str, int]) -> PlanRecord:
    """The plan for machines."""
    parts = _parts(plan)
    return {
        "model": model_name,
        "plan": plan.name,
        "kernels": plan.program.kernels,
        "dims": {name: int(dims[name]) for name in sorted(dims)},
        "peak_bytes": int(plan.peak),
        "load_bytes": int(plan.peak_live),
        "adapted_bytes": int(plan.scratch),
        "total_bytes": int(plan.total),
        "mapped_bytes": int(plan.mapped),
        "peak_step": int(plan.peak_step),
        "steps": len(plan.program.steps),
        "regions": {part: int(size) for part, size in parts.items() if part != FRAGMENTATION},
        "gap_bytes": int(parts[FRAGMENTATION]),
        "alive": [_alive_json(plan, buffer) for buffer in _alive(plan)],
    }


def _parts(plan: Plan) -> dict[str, int]:
    """Bytes at the peak step by region, and the gaps between buffers; largest first."""
    parts = {str(region): size for region, size in plan.regions(plan.peak_step).items()}
    parts[FRAGMENTATION] = plan.peak - sum(parts.values())
    return dict(sorted(parts.items(), key=lambda part: (-part[1], part[0])))


def _outside(plan: Plan) -> list[str]:
    return [f"outside the arena: up to {format_bytes(plan.scratch)}"] if plan.scratch else []


def _alive(plan: Plan) -> list[Buffer]:
    return sorted(plan.live(plan.peak_step), key=lambda b: (-b.bytes, b.name, b.offset))


def _alive_row(plan: Plan, buffer: Buffer) -> tuple[str, ...]:
    spec = plan.spec(buffer)
    unknown = "?" if buffer.values else ""
    return (
        buffer.name,
        SHORT.get(buffer.region, buffer.region),
        unknown if spec is None else "x".join(map(str, spec.shape)) or "scalar",
        unknown if spec is None else spec.dtype.name,
        format_bytes(buffer.bytes),
        f"{buffer.first + 1}-{buffer.last + 1}",
    )


def _alive_json(plan: Plan, buffer: Buffer) -> AliveRecord:
    spec, maker = plan.spec(buffer), plan.maker(buffer)
    return {
        "name": buffer.name,
        "also": [plan.program.values[v].name for v in plan.also(buffer)],
        "op": None if maker is None else maker.op,
        "module": None if maker is None else module(maker),
        "region": buffer.region,
        "shape": None if spec is None else [int(size) for size in spec.shape],
        "dtype": None if spec is None else spec.dtype.name,
        "bytes": int(buffer.bytes),
        "first": int(buffer.first),
        "last": int(buffer.last),
    }


def _plan_row(plan: Plan, name: str) -> tuple[str, ...]:
    regions = plan.regions(plan.peak_step)
    at_peak = (regions.get(region, 0) for region in BESIDE)
    steps = str(len(plan.program.steps))
    return (name, format_bytes(plan.peak), *map(format_bytes, at_peak), steps)
