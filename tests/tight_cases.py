"""Random small programs with budgets that are tight for them."""

from __future__ import annotations

from hypothesis import assume
from hypothesis import strategies as st
from random_programs import programs
from random_steps import steps
from there_and_back import there_and_back

from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.work_bound import least_budget


def case(data):
    """A small program and a budget below the peak of its order."""
    made = data.draw(st.one_of(steps(7), programs(6), there_and_back()))
    costs = [
        index % 4 if s.flops is None and s.op != "Node" else s.flops
        for index, s in enumerate(made.steps)
    ]
    work = CostModel(made, costs)
    least, plain = least_budget(work), work.simulator.peak(work.order)
    assume(least < plain)
    return work, data.draw(st.integers(least - 1, plain - 1))
