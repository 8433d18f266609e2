"""Which groups of clones are taken."""

from __future__ import annotations

import dataclasses
from itertools import product

import pytest
from conftest import trials
from hypothesis import given, settings
from programs import program
from training_programs import chain, training_programs

from gradtool.planning.recompute import groups
from gradtool.planning.recompute.groups import best_groups
from gradtool.planning.recompute.late_clones import late
from gradtool.planning.recompute.mirror import decide
from gradtool.planning.recompute.policy import POLICIES
from gradtool.planning.simulate import Simulator

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}
MIRROR = POLICIES["mirror"]


def scheduled(made, decision, taken):
    numbers = {s.name: i for i, s in enumerate(made.steps)}
    return late(made, {numbers[n]: "+" for g in taken for n in decision.groups[g]})


def chosen(made, decision):
    numbers = {s.name: i for i, s in enumerate(made.steps)}
    everything = range(len(decision.groups))
    steps = [[numbers[n] for n in group] for group in decision.groups]
    return best_groups(Simulator(made), scheduled(made, decision, everything), steps)


def peak(made, decision, taken):
    return Simulator(made).peak(scheduled(made, decision, taken).order)


def test_towers_of_equal_peak_are_mirrored_although_none_pays_alone():
    """The second tower starts when the first one is through: z is there first, then its result."""
    steps = [step for t in "pq" for step in (
        f"{t}1 = MatMul x w", f"{t}2 = Sin {t}1", f"{t}3 = MatMul {t}2 w", f"{t}4 = Exp {t}3",
        f"{t}5 = MatMul {t}4 w", f"{t}g3 = Mul {t}5 {t}4", f"{t}g2 = Mul {t}g3 {t}2",
        f"{t}g1 = Mul {t}g2 {t}1",
    )]  # fmt: skip
    steps = ["z = MatMul x w", *steps[:8], "gz = Mul pg1 z", *steps[8:], "gy = Add gz qg1"]
    made = program(*steps, outputs="gy", parameters="w")
    made = dataclasses.replace(made, steps=tuple(
        dataclasses.replace(s, stage="backward" if "g" in s.name else "forward")
        for s in made.steps
    ))  # fmt: skip
    decision = decide(made, MIRROR)
    simulator, numbers = Simulator(made), {s.name: i for i, s in enumerate(made.steps)}
    alone = [late(made, {numbers[n]: "+" for n in group}) for group in decision.groups]
    taken = chosen(made, decision)

    assert [decision.groups[g] for g in taken] == [("p2",), ("q2",)]
    assert {simulator.peak(s.order) for s in alone} == {simulator.peak(range(len(made.steps)))}
    assert peak(made, decision, taken) < simulator.peak(range(len(made.steps)))


@pytest.mark.parametrize("layers", [2, 3, 5])
def test_on_chains_no_choice_of_groups_has_a_lower_peak(layers):
    made = chain(layers)
    decision = decide(made, MIRROR)
    number = {s.name: i for i, s in enumerate(made.steps)}
    simulator = Simulator(made)
    peaks = []
    for inside in product((False, True), repeat=len(decision.groups)):
        names = [n for g, stays in zip(decision.groups, inside, strict=True) if stays for n in g]
        order = late(made, {number[n]: "+" for n in names}).order
        peaks.append(simulator.peak(order))

    assert peak(made, decision, chosen(made, decision)) == min(peaks)


def test_of_groups_that_serve_alike_the_cheaper_are_taken():
    """Either of p and q makes room for s, which is read at the end."""
    steps = ["a = MatMul x w", "p = Sin a", "q = Sin a", "s = MatMul p q", "gs = Mul s s",
             "gq = Mul gs q", "gp = Mul gq p", "ga = Mul gp a"]  # fmt: skip
    made = program(*steps, outputs="ga", parameters="w", sizes={"gs": 16})
    costs = {"p": 9, "q": 1}
    made = dataclasses.replace(made, steps=tuple(
        dataclasses.replace(s, flops=costs.get(s.name, 0),
                            stage="backward" if s.name[0] == "g" else "forward")
        for s in made.steps
    ))  # fmt: skip
    decision = decide(made, MIRROR)
    taken = chosen(made, decision)
    best = peak(made, decision, taken)
    subsets = [t for t in ([], [0], [1], [0, 1]) if peak(made, decision, t) == best]

    assert list(decision.groups) == [("p",), ("q",)]
    assert taken == min(subsets, key=lambda t: sum((9, 1)[g] for g in t))


def test_without_any_trials_left_the_answer_is_still_sound(monkeypatch):
    monkeypatch.setattr(groups, "CELLS", 0)
    made = chain(6)
    decision = decide(made, MIRROR)

    assert peak(made, decision, chosen(made, decision)) < peak(made, decision, [])


@settings(max_examples=trials(100), **EXAMPLES)
@given(training_programs(most=14))
def test_no_group_that_is_taken_can_be_left_out_and_none_is_worse_than_that(drawn):
    decision = decide(drawn, POLICIES["dots"])
    taken = chosen(drawn, decision)
    best = peak(drawn, decision, taken)

    assert best <= min(peak(drawn, decision, t) for t in ([], range(len(decision.groups))))
    for group in taken:
        assert peak(drawn, decision, [g for g in taken if g != group]) > best
