from __future__ import annotations

import pytest
from mountain import mountain
from shared import instance

from gradtool.planning.search.certificate import certificates
from gradtool.planning.search.cost_model import CostModel


def peak(work):
    """The bytes of the given order."""
    return work.simulator.peak(work.order)


def test_the_first_certificate_of_a_small_program_is_exact_where_one_instant_pinches():
    work = mountain()
    first = next(certificates(work, peak(work) - 64))

    assert first.bound == 1


def test_a_budget_below_a_single_step_is_refuted_at_once():
    work = mountain()

    assert list(certificates(work, 100)) == [None]


def test_what_must_be_kept_refutes_a_budget_that_every_step_alone_would_fit():
    """No step but the first may run again, so b and c stay while d runs."""
    work = CostModel(mountain().program, [9, None, None, None, None, None, None, None])

    assert next(certificates(work, peak(work) - 128)) is None


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "share", "percent"),
    [
        ("resnet50", 0.8, 0.278),
        ("mobilenet", 0.5, 1.634),
        ("fcn8", 0.8, 0.136),
        ("unet", 0.8, 1.983),
    ],
)
def test_graphs_of_the_literature_are_bounded_as_tightly_as_schedules_are_known(
    name, share, percent
):
    work = CostModel(instance(name))
    strongest = max(c.bound for c in certificates(work, int(share * peak(work)) + 1))

    assert strongest >= percent / 100 * work.total
