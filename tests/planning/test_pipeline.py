"""Cuts are those of trying all; schedules are 1F1B, and nobody waits for ever."""

import itertools

import numpy as np
import pytest
from conftest import sampled

from gradtool.errors import UsageError
from gradtool.planning.pipeline import SLACK, Line, Pace, cuts, in_flight, timeline, turns

SIZES = [(stages, parts) for stages in range(1, 7) for parts in (1, 2, 3, 5, 8, 13)]


def line(rng, count):
    return Line(
        seconds=rng.integers(1, 9, count).tolist(),
        held=rng.integers(0, 50, count).tolist(),
        saved=rng.integers(0, 20, count).tolist(),
        crossing=rng.integers(0, 100, count).tolist(),
        trained=(rng.random(count) < 0.6).tolist(),
    )


def costs(given, at, parts):
    """Of cuts: the slowest stage, the largest one, and what goes over them; None if one is idle."""
    bounds = [0, *at, len(given.seconds)]
    runs = [slice(*pair) for pair in itertools.pairwise(bounds)]
    if not all(any(given.trained[run]) for run in runs):
        return None
    slowest = max(sum(given.seconds[run]) for run in runs)
    largest = max(
        sum(given.held[run]) + in_flight(len(runs), stage, parts) * sum(given.saved[run])
        for stage, run in enumerate(runs)
    )
    return slowest, largest, sum(given.crossing[cut] for cut in at)


@pytest.mark.parametrize("seed", sampled(range(40)))
def test_cuts_are_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    given, stages, parts = line(rng, 10), int(rng.integers(2, 5)), int(rng.integers(1, 9))
    every = itertools.combinations(range(1, 10), stages - 1)
    found = {at: cost for at in every if (cost := costs(given, at, parts)) is not None}
    if not found:
        with pytest.raises(UsageError, match="take fewer stages"):
            cuts(given, stages, parts)
        return
    near = (1 + SLACK) * min(cost[0] for cost in found.values())
    fast = {at: cost for at, cost in found.items() if cost[0] <= near}
    least = (1 + SLACK) * min(cost[1] for cost in fast.values())
    best = min(cost[2] for cost in fast.values() if cost[1] <= least)
    slowest, largest, crossing = costs(given, cuts(given, stages, parts), parts)

    assert slowest <= near
    assert largest <= least
    assert crossing == best


@pytest.mark.parametrize(("stages", "parts"), SIZES)
def test_a_stage_has_so_many_micro_batches_in_flight(stages, parts):
    for stage in range(stages):
        order = turns(stages, stage, parts)
        flying = list(itertools.accumulate(1 if p == "forward" else -1 for p, _ in order))

        assert max(flying) == in_flight(stages, stage, parts)
        for phase in ("forward", "backward"):
            assert [number for p, number in order if p == phase] == list(range(parts))
        assert all(flying[i] >= 0 for i in range(len(flying)))


@pytest.mark.parametrize(("stages", "parts"), SIZES)
def test_nobody_waits_for_ever_with_one_message_in_each_slot(stages, parts):
    """A message leaves only when the one of the turn before was taken, at the begin of its turn."""
    left = [turns(stages, stage, parts) for stage in range(stages)]
    begun, ended = set(), set()
    moved = True
    while moved:
        moved = False
        for stage, order in enumerate(left):
            if not order:
                continue
            phase, number = order[0]
            way = 1 if phase == "forward" else -1
            comes, goes = stage - way, stage + way
            turn = (stage, phase, number)
            if turn not in begun and (not 0 <= comes < stages or (comes, phase, number) in ended):
                begun.add(turn)
                moved = True
            free = number == 0 or not 0 <= goes < stages or (goes, phase, number - 1) in begun
            if turn in begun and free:
                ended.add(turn)
                order.pop(0)
                moved = True

    assert not any(left)


@pytest.mark.parametrize(("stages", "parts"), SIZES)
def test_the_bubble_of_even_stages_is_that_of_the_formula(stages, parts):
    """(S - 1) / (M + S - 1) of the time (Narayanan et al. 2021), where messages take none."""
    even, none = [1.0] * stages, [0.0] * (stages - 1)
    drawn = timeline(Pace(even, [2.0] * stages, none, none, [0.0] * stages), parts)
    end = max(turn.end_seconds for turn in drawn)

    assert end == pytest.approx(3 * (parts + stages - 1))
    for stage in range(stages):
        own = [turn for turn in drawn if turn.stage == stage]
        assert [(turn.phase, turn.micro_batch) for turn in own] == turns(stages, stage, parts)
        assert all(a.end_seconds <= b.start_seconds for a, b in itertools.pairwise(own))


def test_a_turn_waits_for_the_message_that_it_needs():
    drawn = timeline(Pace([1, 1], [2, 2], [0.5], [0.25], [0, 0]), 1)

    assert [(turn.stage, turn.start_seconds, turn.end_seconds) for turn in drawn] == [
        (0, 0, 1), (0, 4.75, 6.75), (1, 1.5, 2.5), (1, 2.5, 4.5)
    ]  # fmt: skip
