"""A program whose forward values are read again in reverse order."""

from __future__ import annotations

from programs import program

from gradtool.planning.search.cost_model import CostModel


def mountain() -> CostModel:
    """Four values of 64 bytes, each read again on the way back; a is dear to run again."""
    made = program(
        "a = Tanh x", "b = Tanh a", "c = Tanh b", "d = Tanh c",
        "e = Mul d d", "f = Mul e c", "g = Mul f b", "h = Mul g a",
        outputs="h",
    )  # fmt: skip
    return CostModel(made, [9, 1, 1, 1, 1, 1, 1, 1])
