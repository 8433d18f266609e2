"""Schedules of random programs that run steps again without need, and what they cost."""

from __future__ import annotations

from hypothesis import strategies as st

from gradtool.planning.schedule import Schedule, pruned


def poor(data, made):
    """A schedule with up to three repeats: what they read is there once the step ran."""
    order = list(range(len(made.steps)))
    for _ in range(data.draw(st.integers(0, 3))):
        step = data.draw(st.sampled_from(range(len(made.steps))))
        if made.steps[step].recomputable and made.steps[step].flops is not None:
            order.insert(data.draw(st.integers(order.index(step) + 1, len(order))), step)
    return pruned(made, Schedule.of(order)).order


def costs_of(made):
    return [s.flops for s in made.steps]


def extra_of(made, order):
    return sum(made.steps[s].flops or 0 for s in order) - sum(s.flops or 0 for s in made.steps)
