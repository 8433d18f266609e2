"""Work and peak of a schedule."""

from __future__ import annotations

import dataclasses

import pytest
from programs import program
from training_programs import chain

from gradtool.planning.recompute.result import Work, outcome
from gradtool.planning.schedule import Schedule
from gradtool.planning.simulate import Simulator


def costed(before, **flops):
    steps = [dataclasses.replace(s, flops=flops.get(s.name, 100)) for s in before.steps]
    return dataclasses.replace(before, steps=tuple(steps))


def test_extra_work_is_that_of_what_runs_again_and_says_how_much_is_unknown():
    made = costed(chain(2), h1=7, h2=None)
    found = outcome(Simulator(made), Schedule.of((0, 1, 2, 3, 4, 0, 1, 5, 6, 7)))

    assert (found.extra, found.total) == (Work(7, 1), Work(607, 1))
    assert found.clones == 2
    assert found.extra_percent == pytest.approx(100 * 7 / 607)


def test_without_any_known_cost_there_is_no_percentage():
    plain = program("a = Exp x", "y = Exp a", outputs="y")

    assert outcome(Simulator(plain), Schedule.of((0, 1))).extra_percent is None


def test_instances_that_nobody_reads_are_left_out():
    made = chain(2)
    found = outcome(Simulator(made), Schedule.of((0, 1, 2, 3, 4, 5, 6, 0, 7)))

    assert found.schedule.order.count(0) == 1
    assert found.clones == 0


def test_a_peak_is_better_only_if_it_is_lower():
    made = chain(2)
    kept = outcome(Simulator(made), Schedule.of(range(8)))

    assert not kept.is_better
    assert kept.peak == kept.keep_peak
    assert dataclasses.replace(kept, peak=kept.peak - 1).is_better
