"""How good a plan is, in words and for machines."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from gradtool.planning.search.proof import Proof
from gradtool.workloads import proofs

PROOF = Proof(
    budget=4096, least=2048, extra=3_000, bound=2_000, total=100_000, which_bound="a cut",
    how="search",
)  # fmt: skip

WORK = "optimal: extra work 3000 FLOPs (+3.000 %), bound +2.000 %, gap 1.000 points"


def said(proof):
    return proofs.lines(SimpleNamespace(name="optimal", proof=proof))


def test_work_bound_gap_and_where_they_come_from():
    assert said(PROOF) == (
        WORK,
        "proven: no plan fits in less than 2.00 KiB",
    )


def test_how_it_was_found_is_a_detail():
    found = SimpleNamespace(name="optimal", proof=PROOF)

    assert proofs.details(found) == ("optimal: found by search; bound by a cut",)
    assert proofs.details(SimpleNamespace(name="keep", proof=None)) == ()


def test_where_nothing_runs_again_there_is_nothing_to_bound():
    assert said(replace(PROOF, extra=0, bound=0, least=0)) == ("optimal: nothing runs again",)


def test_work_that_was_allowed_is_said_with_the_bound_of_the_peak():
    assert said(replace(PROOF, allowed=20_000))[1] == (
        "proven: no plan with up to 20.0 % recompute fits in less than 2.00 KiB"
    )


def test_what_was_cut_short_says_so():
    assert "cut short" in said(replace(PROOF, cut_short=True))[-1]


def test_a_gap_that_is_there_is_never_said_to_be_none():
    assert "gap < 0.001 points" in said(replace(PROOF, bound=PROOF.extra - 1, total=10**9))[0]
    assert "gap 0.000 points" in said(replace(PROOF, bound=PROOF.extra, total=10**9))[0]


def test_measured_work_is_time():
    assert "extra work 3.00 µs" in said(replace(PROOF, unit="ns"))[0]


def test_a_plan_without_proof_says_nothing():
    assert said(None) == ()


def test_the_document_has_bytes_work_and_percent():
    found = proofs.proof_json(PROOF)

    assert (found["budget_bytes"], found["lower_bound_bytes"]) == (4096, 2048)
    assert (found["extra_work"], found["bound_work"], found["unit"]) == (3000, 2000, "FLOPs")
    assert (found["extra_percent"], found["bound_percent"], found["gap_percent"]) == (3, 2, 1)
    assert (found["which_bound"], found["how"], found["cut_short"]) == ("a cut", "search", False)


def test_what_is_written_is_read_again():
    for proof in (PROOF, replace(PROOF, cut_short=True, allowed=7, unit="ns", extra=1 << 70)):
        assert proofs.proof_of(proofs.proof_json(proof)) == proof


@pytest.mark.parametrize(
    "wrong",
    [
        {"cut_short": 0}, {"extra_work": 2.0}, {"extra_work": True}, {"total_work": -1},
        {"lower_bound_bytes": 10**6000}, {"allowed_work": "1"}, {"how": None}, {"unit": "s"},
        {"bound_work": 3001},
    ],
)  # fmt: skip
def test_what_we_would_not_write_is_no_proof(wrong):
    assert proofs.proof_of(proofs.proof_json(PROOF) | wrong) is None
