"""What the stages of a training take on paper, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gradtool.text.layout import Column
from gradtool.text.names import escape, shorten
from gradtool.text.table import Table
from gradtool.text.units import format_bytes, format_seconds

SCHEMA_VERSION = 1
BYTES = ("parameters", "gradients", "state", "rest", "peak", "sent")
SECONDS = ("forward", "backward", "computing")
NAME = 24  # characters


class Turn(Protocol):
    """A turn of a stage in time; see `gradtool.planning.pipeline.Drawn`."""

    @property
    def stage(self) -> int: ...
    @property
    def phase(self) -> str: ...
    @property
    def micro_batch(self) -> int: ...
    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...


class Interval(Protocol):
    """What a stage does beside its turns; see `gradtool.training.stage_layouts.Interval`."""

    @property
    def stage(self) -> int: ...
    @property
    def what(self) -> str: ...
    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...


class Stage(Protocol):
    """What a rank of a stage takes; see `gradtool.training.stage_layouts.StageLayout`."""

    @property
    def stage(self) -> int: ...
    @property
    def first(self) -> str: ...
    @property
    def last(self) -> str: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def peak(self) -> int: ...


class Pipeline(Protocol):
    """A training in stages; see `gradtool.training.stage_layouts.Pipeline`."""

    @property
    def stages(self) -> Sequence[Stage]: ...
    @property
    def replicas(self) -> int: ...
    @property
    def micro_batches(self) -> int: ...
    @property
    def shard(self) -> str: ...
    @property
    def turns(self) -> Sequence[Turn]: ...
    @property
    def beside(self) -> Sequence[Interval]: ...
    @property
    def bubble(self) -> float: ...
    @property
    def step(self) -> float: ...


def stages_table(found: Pipeline, title: str, footer: str) -> Table:
    """A row for each stage: from which node to which, and what a rank of it takes."""
    shown = ("parameters", "gradients", "state", "rest", "peak", "sent")
    heads = ("in flight", *shown, "forward", "backward")
    rows = [
        (
            str(each.stage), f"{_name(each.first)} … {_name(each.last)}", str(each.in_flight),
            *(format_bytes(getattr(each, name)) for name in shown),
            *(format_seconds(getattr(each, name)) for name in ("forward", "backward")),
        )
        for each in found.stages
    ]  # fmt: skip
    return Table(
        columns=(
            Column("stage", "right", "number"), Column("nodes"),
            *(Column(head, "right", "number") for head in heads),
        ),
        rows=tuple(rows),
        title=title,
        footer=f"{said(found)}\n{footer}",
    )  # fmt: skip


def said(found: Pipeline) -> str:
    """The step in a line."""
    parts = f"{found.micro_batches} micro-batch{'es' if found.micro_batches > 1 else ''}"
    return f"a step of {parts} takes {format_seconds(found.step)}, bubble {found.bubble:.1%}"


def _name(name: str) -> str:
    return shorten(escape(name), NAME)


def stages_json(
    found: Pipeline, name: str, ranks: int, dims: Mapping[str, int], how: Mapping[str, Any]
) -> dict[str, Any]:
    """The same as a document, and every turn."""
    return {
        "schema_version": SCHEMA_VERSION,
        "model": name,
        "ranks": ranks,
        "replicas": found.replicas,
        "shard": found.shard,
        "dims": dict(dims),
        **how,
        "step_seconds": found.step,
        "bubble": found.bubble,
        "stages": [
            {
                "stage": each.stage, "first": each.first, "last": each.last,
                "in_flight": each.in_flight,
                **{f"{key}_bytes": getattr(each, key) for key in BYTES},
                **{f"{key}_seconds": getattr(each, key) for key in SECONDS},
            }
            for each in found.stages
        ],
        "turns": [
            {
                "stage": turn.stage, "phase": turn.phase, "micro_batch": turn.micro_batch,
                "start_seconds": turn.start, "end_seconds": turn.end,
            }
            for turn in found.turns
        ],
        "beside": [
            {
                "stage": each.stage, "what": each.what,
                "start_seconds": each.start, "end_seconds": each.end,
            }
            for each in found.beside
        ],
    }  # fmt: skip
