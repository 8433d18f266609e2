"""What a proof says of a plan."""

from gradtool.planning.search.proof import Proof

PROOF = Proof(budget=100, least=50, extra=30, bound=20, total=400, which_bound="cut", how="search")


def test_the_gap_lies_between_work_and_bound():
    assert PROOF.gap == 10


def test_work_is_a_share_of_one_step():
    assert PROOF.share(PROOF.extra) == 0.075


def test_a_step_without_cost_has_no_shares():
    assert Proof(1, 0, 0, 0, 0, "none", "order").share(0) == 0
