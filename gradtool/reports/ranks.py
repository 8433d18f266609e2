"""What ranks take on paper, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gradtool.text.layout import Column
from gradtool.text.table import Table
from gradtool.text.units import format_bytes, format_seconds

SCHEMA_VERSION = 1


class Layout(Protocol):
    """What one rank takes; see `gradtool.training.layouts.RankLayout`."""

    @property
    def shard(self) -> str: ...
    @property
    def parameters(self) -> int: ...
    @property
    def gradients(self) -> int: ...
    @property
    def state(self) -> int: ...
    @property
    def rest(self) -> int: ...
    @property
    def peak(self) -> int: ...
    @property
    def sent(self) -> int: ...
    @property
    def computing(self) -> float: ...
    @property
    def sending(self) -> float: ...
    @property
    def step(self) -> float: ...


BYTES = ("parameters", "gradients", "state", "rest", "peak", "sent")
SECONDS = ("computing", "sending", "step")


def ranks_table(layouts: Sequence[Layout], title: str, footer: str) -> Table:
    """A row for each thing that a rank takes, a column for each way to shard."""
    rows = [(name, *(format_bytes(getattr(each, name)) for each in layouts)) for name in BYTES] + [
        (name, *(format_seconds(getattr(each, name)) for each in layouts)) for name in SECONDS
    ]
    heads = ("all held" if each.shard == "none" else f"{each.shard} sharded" for each in layouts)
    return Table(
        columns=(Column("a rank"), *(Column(head, "right", "number") for head in heads)),
        rows=tuple(rows),
        title=title,
        footer=footer,
    )


def ranks_json(
    layouts: Sequence[Layout],
    name: str,
    ranks: int,
    dims: Mapping[str, int],
    how: Mapping[str, Any],
) -> dict[str, Any]:
    """The same as a document."""
    return {
        "schema_version": SCHEMA_VERSION,
        "model": name,
        "ranks": ranks,
        "dims": dict(dims),
        **how,
        "layouts": [
            {
                "shard": each.shard,
                **{f"{key}_bytes": getattr(each, key) for key in BYTES},
                **{f"{key}_seconds": getattr(each, key) for key in SECONDS},
            }
            for each in layouts
        ],
    }
