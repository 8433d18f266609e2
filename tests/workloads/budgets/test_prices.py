"""What running a step again costs."""

import dataclasses

import pytest
from training_programs import chain

from gradtool.errors import UsageError
from gradtool.program import profile
from gradtool.program.profile import Profile, Timed
from gradtool.workloads.budgets import prices
from gradtool.workloads.workload import Workload

BEFORE = chain(2)
PROGRAM = dataclasses.replace(
    BEFORE,
    steps=tuple(dataclasses.replace(s, flops=10 + i) for i, s in enumerate(BEFORE.steps)),
)
WORK = Workload(None, PROGRAM, {})


def times(**changes):
    nodes = {s.name: Timed(s.op, 2e-9 * i) for i, s in enumerate(PROGRAM.steps)}
    return Profile(nodes | changes, 1)


def test_flops_are_the_price_unless_others_are_given():
    assert prices.FLOPS.of(PROGRAM) == tuple(s.flops for s in PROGRAM.steps)
    assert prices.FLOPS.total(PROGRAM) == sum(s.flops for s in PROGRAM.steps)


def test_the_forward_pass_is_what_is_not_backward():
    forward = [s.flops for s in PROGRAM.steps if s.stage == "forward"]

    assert 0 < prices.FLOPS.forward(PROGRAM) == sum(forward)


def test_measured_seconds_become_whole_nanoseconds():
    found = prices.measured(WORK, times(), "p.json")

    assert found.costs == tuple(2 * i for i in range(len(PROGRAM.steps)))
    assert found.unit == "ns"


def test_a_node_without_a_time_is_named():
    with pytest.raises(UsageError, match=r"f\.json: no time of node "):
        prices.measured(WORK, Profile({}, 1), "f.json")


@pytest.mark.parametrize("kernels", ["native", "exact"])
def test_times_of_other_kernels_are_refused(kernels):
    profile = dataclasses.replace(times(), kernels=kernels)

    with pytest.raises(UsageError, match=r"^f\.json: the times are of native kernels.*here a step "
                       r"is planned for numpy's kernels: .* --kernels numpy$"):  # fmt: skip
        prices.measured(WORK, profile, "f.json")

    assert prices.measured(WORK, dataclasses.replace(times(), kernels=None), "f.json").unit == "ns"


def test_a_node_that_is_another_operator_is_named():
    name = PROGRAM.steps[0].name

    with pytest.raises(UsageError, match=f"node {name!r} is Cos, here it is MatMul"):
        prices.measured(WORK, times(**{name: Timed("Cos", 1.0)}), "f.json")


def test_prices_go_by_name(tmp_path):
    profile.save(times(), tmp_path / "p.json")

    assert prices.named("flops")(WORK) is prices.FLOPS
    assert prices.named(str(tmp_path / "p.json"))(WORK).unit == "ns"
    with pytest.raises(UsageError, match="cannot be read"):
        prices.named("none.json")
