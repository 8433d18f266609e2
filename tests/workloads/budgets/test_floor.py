"""What is proven of memory before a search: never above a plan, never below what was known."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layered import layers, workload_of
from training_programs import training_programs

from gradtool.workloads.budgets.floor import raise_floor
from gradtool.workloads.budgets.probes import Probes, work_of
from gradtool.workloads.budgets.search import halved

EFFORT = 0.05


@given(st.data())
@settings(max_examples=10, deadline=None)
def test_no_plan_found_lies_below_the_floor_of_its_work(data):
    work = workload_of(data.draw(training_programs(most=6)))
    probes = Probes(work)
    for allowed in (probes.total // 10, None):
        before = probes.least_of(allowed)
        raise_floor(probes, allowed, EFFORT)
        assert probes.least_of(allowed) >= before
        halved(probes, allowed, EFFORT, 1)

    for found in probes.found:
        assert probes.least_of(work_of(found)) <= found.plan.peak


@pytest.mark.parametrize("share", [0, 0.1])
def test_the_floor_is_above_what_one_step_takes_where_work_is_short(share):
    probes = Probes(layers(6))
    allowed = int(share * probes.total)
    raise_floor(probes, allowed, EFFORT)

    assert probes.least < probes.least_of(allowed) <= probes.reached(allowed)


def test_less_work_needs_no_less_memory():
    probes = Probes(layers(6))
    for allowed in (0, probes.total // 20, probes.total // 5):
        raise_floor(probes, allowed, EFFORT)
    floors = [probes.least_of(a) for a in (0, probes.total // 20, probes.total // 5, None)]

    assert floors == sorted(floors, reverse=True)
