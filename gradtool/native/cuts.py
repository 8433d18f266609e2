"""Minimum cuts with 64-bit capacities, for `gradtool.planning.flow`."""

from __future__ import annotations

from gradtool.native.call import Array, Call, Signature

MIN_CUT = Signature("min_cut", "heads starts back left value work side", "nodes source sink")
WORDS = 4  # of the workspace for each node


def min_cut(
    heads: Array, starts: Array, back: Array, left: Array, value: Array, work: Array, side: Array,
    *, source: int, sink: int,
) -> Call:  # fmt: skip
    """`side[v]`: whether the source reaches v when a largest flow is taken from `left`.

    Arcs are sorted by their tails, of which `starts` tells the first and the end; each has its
    reverse, at `back`.  `value[0]` becomes the flow, -1 if a way has 2^61 or more.
    """
    return MIN_CUT.bind(
        heads=heads, starts=starts, back=back, left=left, value=value, work=work, side=side,
        nodes=side.size, source=source, sink=sink,
    )  # fmt: skip
