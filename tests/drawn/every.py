"""Every drawer, and the operators with a gradient that none draws."""

from __future__ import annotations

from collections.abc import Sequence

from drawn import (  # noqa: F401 - they register
    attention,
    elementwise,
    index,
    layout,
    linear,
    loss,
    low_bits,
    norm,
    others,
    recurrent,
    reduce,
    signal,
    vision,
    windows,
)
from drawn.case import DRAWERS

ELSEWHERE = {
    "Resize": "resampling: a sweep of its own",
    "BitCast": "to another type it is refused: tests/operators/test_refusals.py",
    **dict.fromkeys(("If", "Loop", "Scan"), "control flow: tests/operators/control.py"),
    **dict.fromkeys(
        (
            "ConcatFromSequence", "Optional", "OptionalGetElement", "SequenceAt",
            "SequenceConstruct", "SequenceErase", "SequenceInsert", "SequenceMap",
            "SplitToSequence",
        ),
        "sequences: tests/operators/sequence.py",
    ),
    **dict.fromkeys(
        ("QuantizeLinear", "DynamicQuantizeLinear"), "straight through: no slope to compare"
    ),
}  # fmt: skip


def names(per_operator: int, operators: Sequence[str] = (), first: int = 0) -> list[str]:
    """The names of so many cases of each operator: of all, if none is named."""
    numbers = range(first, first + per_operator)
    return [f"{op}:{number}" for op in operators or sorted(DRAWERS) for number in numbers]
