"""The costs of ranks on paper, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict

from gradtool.text.json_schema import Amount, Count, Keywords, Positive
from gradtool.text.layout import Column
from gradtool.text.table import Table
from gradtool.text.units import format_bytes, format_seconds
from gradtool.workloads.records import PlannedFor

Sharding = Literal["none", "optimizer", "gradients"]


class Setup(TypedDict):
    """A training and its link."""

    optimizer: str
    kernels: PlannedFor
    micro_batches: Positive
    link_bytes_per_second: Amount
    latency_seconds: Amount
    cost: Annotated[str, "Where the time of nodes is from."]


class RanksRecord(Setup):
    """The training of a model on ranks."""

    model: str
    ranks: Annotated[int, Keywords(minimum=2)]
    dims: Annotated[dict[str, int], "Sizes that nobody gave, and their assumed values."]


@dataclass(frozen=True)
class RankLayout:
    """One rank: bytes of its arena by purpose, and seconds of a step."""

    shard: Annotated[Sharding, "The values sharded over ranks."]
    parameters_bytes: Count
    gradients_bytes: Annotated[Count, "The sums of gradients."]
    state_bytes: Annotated[Count, "The state of the optimizer that a rank holds."]
    rest_bytes: Annotated[Count, "Everything else that a step holds at once."]
    peak_bytes: Annotated[Count, "The bytes of a rank's arena: the four before together."]
    sent_bytes: Annotated[Count, "Bytes sent by a rank in a step."]
    computing_seconds: Annotated[Amount, "Without waiting for others."]
    sending_seconds: Annotated[Amount, "Of all that goes over the link."]
    step_seconds: Annotated[Amount, "With sending overlapped by backward."]


class RanksDocument(RanksRecord):
    """The memory and the time of ranks, planned."""

    layouts: Sequence[RankLayout]


BYTES = ("parameters", "gradients", "state", "rest", "peak", "sent")
SECONDS = ("computing", "sending", "step")


def ranks_table(layouts: Sequence[RankLayout], title: str, footer: str) -> Table:
    """A row for each cost of a rank, a column for each way to shard."""
    rows = [
        (name, *(format_bytes(getattr(each, f"{name}_bytes")) for each in layouts))
        for name in BYTES
    ] + [
        (name, *(format_seconds(getattr(each, f"{name}_seconds")) for each in layouts))
        for name in SECONDS
    ]
    heads = ("all held" if each.shard == "none" else f"{each.shard} sharded" for each in layouts)
    return Table(
        columns=(Column("a rank"), *Column.numbers(*heads)),
        rows=tuple(rows),
        title=title,
        footer=footer,
    )


def ranks_json(
    layouts: Sequence[RankLayout], name: str, ranks: int, dims: Mapping[str, int], how: Setup
) -> RanksDocument:
    """The same as a document."""
    return {"model": name, "ranks": ranks, "dims": dict(dims), **how, "layouts": layouts}
