"""Placing buffers into gaps and on a skyline, in integers; `gradtool.planning.packing` says how."""

from __future__ import annotations

from gradtool.native.call import Array, Call, Signature

FILL = Signature(
    "fill_gaps",
    "start stop size order around found left counts work",
    "count fixed capacity most rule",
)
REPEAT = Signature(
    "repeat_gaps",
    "start stop size ranked blamed best lowest found order work bins",
    "count least quarters turns levels",
)
SKYLINE = Signature("skyline", "start stop size order found work", "count")
PLACED, RESTING = 3, 5  # words of the workspace for each buffer


def fill(
    start: Array, stop: Array, size: Array, order: Array, around: Array, found: Array, left: Array,
    counts: Array, work: Array, *, capacity: int, most: int, rule: int,
) -> Call:  # fmt: skip
    """`found[i]` for each i of an order, around placed buffers; `left`, and three `counts`.

    These are the buffers without a place, the pairs looked at, and the buffers tried.
    """
    return FILL.bind(
        start=start, stop=stop, size=size, order=order, around=around, found=found, left=left,
        counts=counts, work=work, count=order.size, fixed=around.size, capacity=capacity, most=most,
        rule=rule,
    )  # fmt: skip


def repeat(
    start: Array, stop: Array, size: Array, ranked: Array, blamed: Array, best: Array,
    lowest: Array, found: Array, order: Array, work: Array, bins: Array, *, least: int,
    quarters: int, turns: int,
) -> Call:  # fmt: skip
    """Packs so many `turns`, or until `least` is reached; the lowest packing in `best`.

    Buffers are placed by how often each was `blamed`, then as they are `ranked`; those that end
    above `quarters` of the way from `least` to the top are blamed.  `bins` has a word for each
    number of times.
    """
    return REPEAT.bind(
        start=start, stop=stop, size=size, ranked=ranked, blamed=blamed, best=best, lowest=lowest,
        found=found, order=order, work=work, bins=bins, count=ranked.size, least=least,
        quarters=quarters, turns=turns, levels=bins.size,
    )  # fmt: skip


def skyline(
    start: Array, stop: Array, size: Array, order: Array, found: Array, work: Array
) -> Call:
    """`found[i]`: each time the buffer that can lie lowest, ties in the given order."""
    return SKYLINE.bind(
        start=start, stop=stop, size=size, order=order, found=found, work=work, count=order.size
    )
