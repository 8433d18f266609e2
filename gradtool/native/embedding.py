"""Rows of a table by their numbers (`Gather` of axis 0), and the table's gradient; no workspace.

Indices are int64; negative ones count from the end.  `wrong`, one int64, becomes how many lie
beyond the table: nothing is read or written for those, their rows of y are 0.
"""

from __future__ import annotations

from gradtool.native.call import Array, Call, Signature

GATHER = Signature("gather_rows", "table index y wrong", "count rows width slots")
SCATTER = Signature("scatter_rows", "dy index dtable wrong", "count rows width slots")


def gather(table: Array, index: Array, y: Array, wrong: Array) -> Call:
    """`y[i] = table[index[i]]`, of a table `[V, …]` and indices of any shape."""
    return GATHER.bind(
        table=table, index=index, y=y, wrong=wrong, count=index.size, rows=table.shape[0],
        width=table[:1].size,
    )  # fmt: skip


def gradient(dy: Array, index: Array, dtable: Array, wrong: Array) -> Call:
    """`dtable[v]`: the sum of `dy[i]` where `index[i] = v`, in the order of i; written whole."""
    return SCATTER.bind(
        dy=dy, index=index, dtable=dtable, wrong=wrong, count=index.size, rows=dtable.shape[0],
        width=dtable[:1].size,
    )  # fmt: skip
