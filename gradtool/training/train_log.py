"""The log of a training in progress, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypedDict

from gradtool.text.json_schema import Count, Keywords, Positive
from gradtool.text.layout import Column
from gradtool.text.table import Table
from gradtool.text.units import format_bytes, format_rate, format_seconds, format_wait
from gradtool.training.fit import Candidate, Fit
from gradtool.training.history import History
from gradtool.training.loop import End

Written = Mapping[str, tuple[str, int, int]]  # by kind: path, bytes, the step of the weights


class CandidateRecord(TypedDict):
    """A way to take a step."""

    micro_batches: Positive
    examples: Positive
    plan: str
    peak_bytes: Count
    predicted_seconds: Annotated[
        float | None, "On a nominal machine; null where the step does not fit."
    ]
    chosen: bool


class FitRecord(TypedDict):
    """The ways to take a step tried for a memory."""

    memory_bytes: Positive
    candidates: list[CandidateRecord]


class BestRecord(TypedDict):
    """The best evaluation."""

    step: Count
    value: float


class WrittenRecord(TypedDict):
    """A written file."""

    path: str
    bytes: Count
    step: Annotated[Count, "The step that the weights are of."]


EvaluationRecord = Annotated[
    dict[str, float | None],
    Keywords(properties={"step": {"type": "integer", "minimum": 0}}, required=["step"]),
]


class TablesRecord(TypedDict):
    """Counts by label, a row each, and by prediction, of an evaluation."""

    step: Count
    tables: Annotated[dict[str, list[list[Count]]], "By metric."]


class TrainDocument(TypedDict):
    """A training."""

    model: Annotated[str, "The forward model."]
    steps: Annotated[Count, "Steps taken, with those before a --resume."]
    skipped: Annotated[Count, "Steps that updated nothing, for an infinity at a loss scale."]
    ended: Annotated[End, "Why training ended."]
    loss: Annotated[float | None, "That of the last step; null if none was taken now."]
    evaluations: Annotated[list[EvaluationRecord], "Each metric by its name."]
    tables: Annotated[
        list[TablesRecord], "Of the best evaluation and the last: --metric confusion."
    ]
    fit: Annotated[FitRecord | None, "How a memory is kept to; null without --memory."]
    best: Annotated[BestRecord | None, "The best evaluation; null without --eval."]
    written: Annotated[
        dict[str, WrittenRecord],
        "trained: the model with its new weights; ema: the model with the means of its weights; "
        "lora: the model with a place for the adapters; adapter: the adapters, for onnxruntime's "
        "LoraAdapter.",
        Keywords(propertyNames={"enum": ["trained", "ema", "lora", "adapter"]}),
        Keywords(required=["trained"]),
    ]


@dataclass(frozen=True)
class Now:
    """The progress of a training: `step` of `steps`, None if only the data know.

    `seconds` are those of a step, `left` those to the end, None if unknown so far; `planned` and
    `measured` are bytes, the latter taken by the process since before the first step, None where
    the system does not tell.  `examples` are those of a step, None if only the data know.
    `tokens` are those of texts in a step, the mean of all.
    """

    step: int
    steps: int | None
    epoch: int
    loss: float
    rate: float
    seconds: float
    left: float | None
    planned: int
    measured: int | None
    examples: int | None = None
    tokens: float | None = None


# The most important one first.
LIVE = ("step", "left", "loss", "speed", "epoch", "lr", "time", "memory")
LOGGED = ("step", "epoch", "loss", "lr", "time", "speed", "left", "memory")


def clauses(now: Now, order: Sequence[str] = LOGGED) -> list[str]:
    """The clauses about a step, in an order."""
    of = "" if now.steps is None else f"/{now.steps}"
    measured = "" if now.measured is None else f", {format_bytes(now.measured)} measured"
    said = {
        "step": f"step {now.step}{of}",
        "epoch": f"epoch {now.epoch + 1}",
        "loss": f"loss {now.loss:.5g}",
        "lr": f"lr {now.rate:.3g}",
        "time": f"{format_seconds(now.seconds)} a step",
        "speed": _speed(now),
        "left": f"left {format_wait(now.left)}" if now.left else "",
        "memory": f"memory {format_bytes(now.planned)} planned{measured}",
    }
    return [said[name] for name in order if said[name]]


def _speed(now: Now) -> str:
    """Tokens or else examples a second, where both are known."""
    if now.examples is None or not now.seconds > 0:
        return ""
    if now.tokens is not None:
        return f"{format_rate(now.tokens / now.seconds)} tokens/s"
    return f"{format_rate(now.examples / now.seconds)} examples/s"


_WRITTEN = {
    "ema": "the means of the weights",
    "lora": "the model with a place for the adapters",
    "adapter": "the adapters",
}


def numbers(found: Mapping[str, float]) -> str:
    """`loss 0.12, accuracy 0.93`."""
    return ", ".join(f"{name} {value:.5g}" for name, value in found.items())


def history_lines(history: History, written: Written) -> list[str]:
    """The result of a training, and the written files."""
    ended = {
        "patience": "stopped: no evaluation was better", "steps": "done",
        "interrupted": "stopped",
    }  # fmt: skip
    skipped = f", {history.skipped} skipped" if history.skipped else ""
    last = f": the last loss is {history.losses[-1]:.5g}" if history.losses else ""
    found = [f"{ended[history.ended]} after step {history.step}{skipped}{last}"]
    if history.evaluations:
        step, values = history.evaluations[-1]
        found.append(f"evaluated at step {step}: {numbers(values)}")
    for what, (path, size, step) in written.items():
        of = _WRITTEN.get(what, "the weights")
        found.append(f"wrote {path} ({format_bytes(size)}): {of} of step {step}")
    return found


def _finite(number: float) -> float | None:
    """A number as JSON has it: None unless finite."""
    return number if math.isfinite(number) else None


def fit_table(memory: int, candidates: Sequence[Candidate], chosen: Candidate) -> Table:
    """A row for each way to take a step, with the chosen one named."""
    known = [each.time for each in candidates if each.time is not None]
    return Table(
        columns=(*Column.numbers("micro-batches", "examples", "peak", "time"), Column("plan")),
        rows=tuple(
            (
                str(each.micro_batches), str(each.examples), format_bytes(each.peak),
                "-" if each.time is None else f"{each.time / min(known):.2f}×",
                f"{each.plan}{'' if each is not chosen else ', chosen'}",
            )
            for each in candidates
        ),
        title=f"steps that fit into {format_bytes(memory)}",
        footer="time: predicted, of the least; - does not fit",
    )  # fmt: skip


def _fit_json(fit: Fit | None) -> FitRecord | None:
    return None if fit is None else {
        "memory_bytes": fit.memory,
        "candidates": [
            {
                "micro_batches": each.micro_batches,
                "examples": each.examples,
                "plan": each.plan,
                "peak_bytes": each.peak,
                "predicted_seconds": each.time,
                "chosen": each is fit.chosen,
            }
            for each in fit.candidates
        ],
    }  # fmt: skip


def history_json(history: History, written: Written, source: str) -> TrainDocument:
    """The same for machines."""
    best = history.best
    return {
        "model": source,
        "steps": history.step,
        "skipped": history.skipped,
        "ended": history.ended,
        "loss": _finite(history.losses[-1]) if history.losses else None,
        "evaluations": [
            {"step": step, **{name: _finite(value) for name, value in found.items()}}
            for step, found in history.evaluations
        ],
        "tables": [
            {"step": step, "tables": {name: table.tolist() for name, table in tables.items()}}
            for step, tables in sorted(history.tables.items())
        ],
        "fit": _fit_json(history.fit),
        "best": None if best is None else {"step": best.step, "value": best.value},
        "written": {
            what: {"path": path, "bytes": size, "step": step}
            for what, (path, size, step) in written.items()
        },
    }
