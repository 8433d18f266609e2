"""Sequences and optional values only move tensors."""

from gradtool.ops.costs import free

free((
    "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt",
    "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength",
    "SplitToSequence",
))  # fmt: skip
