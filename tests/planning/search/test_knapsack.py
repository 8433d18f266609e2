from __future__ import annotations

from programs import program

from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.knapsack import fill, regions
from gradtool.planning.search.mincut import Instant


def layers():
    """Three equal layers, whose values are read once more on the way back."""
    made = program(
        "a = Tanh x", "b = Tanh a", "c = Tanh b", "l = Exp c",
        "m = Exp l", "p = Mul m c", "q = Mul p b", "r = Mul q a",
        outputs="r",
    )  # fmt: skip
    return CostModel(made, [1, 1, 1, 1, 1, 1, 1, 1])


def test_layers_that_flip_together_are_filled_one_by_one():
    work = layers()
    instant = Instant.of(work, 4)
    ends = instant.breakpoint(128)
    choice = fill(work, ends, 128)

    assert (ends.large.bytes, ends.large.cost) == (192, 0)
    assert choice.bytes <= 128
    assert choice.cost <= ends.small.cost


def test_regions_add_up_to_the_difference_of_the_choices():
    work = layers()
    ends = Instant.of(work, 4).breakpoint(128)
    found = regions(work, ends)

    assert sum(r.bytes for r in found) == ends.large.bytes - ends.small.bytes
    assert sum(r.cost for r in found) == ends.small.cost - ends.large.cost


def test_the_latest_regions_are_kept():
    """Two values that do not depend on each other: the later one's gradient comes first."""
    made = program(
        "a = Tanh x", "s = Exp a", "b = Tanh s", "t = Exp b", "l = Exp t",
        "m = Exp l", "p = Mul m b", "q = Mul p s", "r = Mul q a",
        outputs="r",
    )  # fmt: skip
    work = CostModel(made, [1, None, 1, 1, 1, 1, 1, 1, 1])
    instant = Instant.of(work, 5)
    ends = instant.breakpoint(128)
    choice = fill(work, ends, 128)

    assert {made.values[r].name for r in choice.kept} == {"s", "b"}
