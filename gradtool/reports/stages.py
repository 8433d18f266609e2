"""The costs of the stages of a training on paper, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from gradtool.planning.pipeline import Drawn
from gradtool.reports.ranks import BYTES, RanksRecord, Setup
from gradtool.text.json_schema import Amount, Count, Keywords, Positive
from gradtool.text.layout import Column
from gradtool.text.names import escape, shorten
from gradtool.text.table import Table
from gradtool.text.units import format_bytes, format_seconds

NAME = 24  # characters
Beside = Literal["given", "sums", "update", "parts"]


@dataclass(frozen=True)
class StageLayout:
    """A rank of a stage: bytes of its arena by purpose, and seconds of a step."""

    stage: Count
    first: Annotated[str, "The first forward node of the stage; none where it has none."]
    last: str
    in_flight: Annotated[Positive, "Micro-batches that have begun and not ended, at most."]
    parameters_bytes: Count
    gradients_bytes: Annotated[Count, "The sums of gradients."]
    state_bytes: Annotated[Count, "The state of the optimizer that a rank holds."]
    rest_bytes: Annotated[Count, "Everything else that a step holds at once."]
    peak_bytes: Annotated[Count, "The bytes of a rank's arena: the four before together."]
    sent_bytes: Annotated[
        Count, "Bytes sent by a rank of it in a step, to other stages and to its replicas."
    ]
    forward_seconds: Annotated[Amount, "Of one micro-batch."]
    backward_seconds: Annotated[Amount, "Of one micro-batch."]
    computing_seconds: Annotated[Amount, "Of all micro-batches and of the updates."]


@dataclass(frozen=True)
class Interval:
    """An interval of a stage beside its turns.

    `what` is `given`, shared parameters that come from an earlier stage; `sums`, the wait for
    gradients of the other replicas; `update`; or `parts`, which replicas give each other.
    """

    stage: Count
    what: Beside
    start_seconds: Amount
    end_seconds: Amount


class StagesDocument(RanksRecord):
    """The memory and the time of stages, planned."""

    replicas: Annotated[Positive, "Ranks that have the same stage."]
    shard: Annotated[
        Literal["none", "optimizer"],
        "The values sharded over replicas: nothing, or the optimizer's state.",
    ]
    step_seconds: Amount
    bubble: Annotated[
        float,
        "The share of the time of turns in which stages wait for each other.",
        Keywords(minimum=0, maximum=1),
    ]
    stages: Sequence[StageLayout]
    turns: Sequence[Drawn]
    beside: Annotated[
        Sequence[Interval],
        "The step beside turns: shared parameters that come from an earlier stage, the wait "
        "for gradients of other replicas, the update, and parts that replicas give each other.",
    ]
    written: Annotated[dict[str, Count], "The bytes of each file that was written, by its path."]


@dataclass(frozen=True)
class Pipeline:
    """A training in stages: the costs of each, a step in time, and its seconds.

    `bubble` is the share of the turns' time in which stages wait for each other; `beside` are the
    parts of the step other than turns.
    """

    stages: tuple[StageLayout, ...]
    replicas: int
    micro_batches: int
    shard: Literal["none", "optimizer"]
    turns: tuple[Drawn, ...]
    beside: tuple[Interval, ...]
    bubble: float
    step: float


def stages_table(found: Pipeline, title: str, footer: str) -> Table:
    """A row for each stage: its first and last node, and the costs of a rank of it."""
    heads = ("in flight", *BYTES, "forward", "backward")
    rows = [
        (
            str(each.stage), f"{_name(each.first)} … {_name(each.last)}", str(each.in_flight),
            *(format_bytes(getattr(each, f"{name}_bytes")) for name in BYTES),
            *map(format_seconds, (each.forward_seconds, each.backward_seconds)),
        )
        for each in found.stages
    ]  # fmt: skip
    return Table(
        columns=(*Column.numbers("stage"), Column("nodes"), *Column.numbers(*heads)),
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
    found: Pipeline,
    name: str,
    ranks: int,
    dims: Mapping[str, int],
    how: Setup,
    written: Mapping[str, int],
) -> StagesDocument:
    """The same as a document, every turn, and the bytes of the `written` files."""
    return {
        "model": name,
        "ranks": ranks,
        "replicas": found.replicas,
        "shard": found.shard,
        "dims": dict(dims),
        **how,
        "step_seconds": found.step,
        "bubble": found.bubble,
        "stages": found.stages,
        "turns": found.turns,
        "beside": found.beside,
        "written": dict(written),
    }
