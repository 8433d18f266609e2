"""The report of `gradtool run` on a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict

import numpy as np

from gradtool.exec.results import counted
from gradtool.reports.memory import summary
from gradtool.text.json_schema import Count
from gradtool.text.layout import Column
from gradtool.text.table import Table
from gradtool.text.units import format_bytes, format_percent, format_seconds

if TYPE_CHECKING:
    from gradtool.exec.measure import Measurement
    from gradtool.exec.results import Result

SHOWN = 12
BLOCK = 1 << 20  # elements


class ArrayRecord(TypedDict):
    """An array; its norm is text where it is nan or inf."""

    shape: list[Count]
    norm: float | str | None


class MeasuredRecord(TypedDict):
    """Bytes of a step as they were measured."""

    peak_bytes: Count
    arena_high_water_bytes: Annotated[Count, "The last byte of the arena that changed."]
    outside_arena_bytes: Annotated[Count, "The most that was allocated beside the arena."]
    retained_bytes: Annotated[int, "Bytes not freed after the step."]
    dynamic_bytes: Annotated[Count, "Values whose sizes depend on data."]
    mapped_bytes: Annotated[Count, "Weights that are read where they lie in a file, in no arena."]
    anonymous_bytes: Annotated[
        Count | None, "Of the whole process; null where the system does not tell."
    ]
    file_bytes: Annotated[Count | None, "Resident pages of files, libraries included; likewise."]
    step_seconds: float


class RunDocument(TypedDict):
    """A step run."""

    device: str
    loss: Annotated[
        float | str | None, "Text where it is nan, inf or -inf; null where there is none."
    ]
    seconds: float
    gradients: Annotated[dict[str, ArrayRecord], "By the name of the value."]
    outputs: NotRequired[dict[str, ArrayRecord]]
    planned_bytes: NotRequired[Count]
    arena_bytes: NotRequired[Annotated[Count, "Bytes allocated for the step."]]
    adapted_bytes: NotRequired[Count]
    ort_peak_bytes: NotRequired[
        Annotated[
            Count,
            "Bytes of onnxruntime beside inputs and weights: the high-water mark of its process.",
        ]
    ]
    ort_live_bytes: NotRequired[
        Annotated[
            Count, "The same with nothing held that is not in use: the most allocated at once."
        ]
    ]
    ort_planned_bytes: NotRequired[
        Annotated[Count, "Planned bytes of our executor beside inputs and weights."]
    ]
    measured: NotRequired[MeasuredRecord]


def gradients_table(result: Result, top: int = SHOWN) -> Table:
    """The gradients with the largest norms, and how many more there are."""
    return _table("gradient of", result.gradients, top)


def outputs_table(result: Result, top: int = SHOWN) -> Table:
    """The other numeric outputs, in the same way."""
    numbers = {n: a for n, a in result.outputs.items() if a.dtype.kind not in "OSU"}
    return _table("value", numbers, top)


def _table(title: str, arrays: Mapping[str, np.ndarray[Any, Any]], top: int) -> Table:
    norms = {name: _norm(array) for name, array in arrays.items()}
    largest = sorted(norms, key=lambda n: (-norms[n] if norms[n] == norms[n] else -np.inf, n))
    rest = len(largest) - top
    return Table(
        columns=(Column(title, kind="name"), *Column.numbers("shape", "norm", "largest")),
        rows=tuple(_row(name, arrays[name], norms[name]) for name in largest[:top]),
        footer=f"and {rest} more" if rest > 0 else "",
    )


def _wide(array: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """The elements in double precision, by blocks: all of them may not fit beside a step."""
    flat = array.reshape(-1)
    return (flat[at : at + BLOCK].astype(np.float64) for at in range(0, flat.size, BLOCK))


def _norm(array: np.ndarray[Any, Any]) -> float:
    norms = [float(np.linalg.norm(block)) for block in _wide(array)]
    return norms[0] if len(norms) == 1 else float(np.linalg.norm(norms))


def _row(name: str, array: np.ndarray[Any, Any], norm: float) -> tuple[str, ...]:
    highest = [np.abs(block, out=block).max() for block in _wide(array)]
    largest = float(np.max(highest, initial=0.0))
    shape = "×".join(map(str, array.shape)) or "scalar"
    return name, shape, f"{norm:.4g}", f"{largest:.4g}"


FLAT = (
    "all gradients are zero, so nothing trains: the loss does not move with what it was "
    "differentiated by; see --loss, --wrt, and the inputs"
)


def is_flat(result: Result) -> bool:
    """Whether there are gradients, and all their elements are zero."""
    found = [g for g in result.gradients.values() if g.size]
    return bool(found) and not any(np.any(g) for g in found)


def run_lines(result: Result, where: str) -> list[str]:
    """Loss, time and memory, for people."""
    loss = "" if result.loss is None else f"loss {result.loss:.6g}   "
    step = format_seconds(result.seconds)
    lines = [f"{loss}{counted(result)}   step {step} on {where}"]
    if result.plan is not None:
        lines.append(summary(result.plan))
    if result.ort_peak_bytes is not None:
        peak = format_bytes(result.ort_peak_bytes)
        lines.append(f"peak {peak} beside inputs and weights: measured, the high-water mark")
    if result.ort_live_bytes is not None:
        live = format_bytes(result.ort_live_bytes)
        lines.append(f"live {live} of it: measured, what is allocated at once")
    if result.ort_planned_bytes is not None:
        own = format_bytes(result.ort_planned_bytes)
        lines.append(f"planned {own} for our executor: not measured")
    if result.measurement is not None:
        m = result.measurement
        share = format_percent(m.peak / m.planned) if m.planned else "-"
        lines.append(
            f"measured {format_bytes(m.peak)} of {format_bytes(m.planned)} planned ({share}): "
            f"arena {format_bytes(m.high_water)}, outside the arena "
            f"{format_bytes(m.outside)}, not freed after the step {format_bytes(m.retained)}"
        )
        lines += [_mapped_line(m)] if m.mapped else []
    return lines


def _mapped_line(m: Measurement) -> str:
    """What is mapped, and what the process has of either kind of memory."""
    read = f"{format_bytes(m.mapped)} of weights are read in their file, mapped"
    if m.process is None:
        return f"{read}; this system does not tell anonymous memory from pages of files"
    anonymous, files = map(format_bytes, (m.process.anonymous, m.process.of_files))
    return f"{read}; the process has {anonymous} of anonymous memory, {files} of pages of files"


def run_json(result: Result, where: str, *, fetched: bool = False) -> RunDocument:
    """The same for machines; bytes and seconds, and as text the numbers that JSON lacks."""
    document: RunDocument = {
        "device": where,
        "loss": None if result.loss is None else _number(result.loss),
        "seconds": result.seconds,
        "gradients": _arrays(result.gradients),
    }
    if fetched or not result.gradients:
        document["outputs"] = _arrays(result.outputs)
    if result.plan is not None:
        document["planned_bytes"] = result.plan.total
        document["arena_bytes"] = result.plan.peak
        document["adapted_bytes"] = result.plan.scratch
    if result.ort_peak_bytes is not None:
        document["ort_peak_bytes"] = result.ort_peak_bytes
    if result.ort_live_bytes is not None:
        document["ort_live_bytes"] = result.ort_live_bytes
    if result.ort_planned_bytes is not None:
        document["ort_planned_bytes"] = result.ort_planned_bytes
    if result.measurement is not None:
        m = result.measurement
        document["measured"] = {
            "peak_bytes": m.peak,
            "arena_high_water_bytes": m.high_water,
            "outside_arena_bytes": m.outside,
            "retained_bytes": m.retained,
            "dynamic_bytes": m.dynamic,
            "mapped_bytes": m.mapped,
            "anonymous_bytes": None if m.process is None else m.process.anonymous,
            "file_bytes": None if m.process is None else m.process.of_files,
            "step_seconds": m.seconds,
        }
    return document


def _arrays(found: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, ArrayRecord]:
    return {
        name: {"shape": list(array.shape), "norm": _number(_norm(array))}
        for name, array in found.items()
    }


def _number(found: float) -> float | str:
    """A number, or `nan`, `inf` or `-inf` as text."""
    return found if np.isfinite(found) else str(float(found))
