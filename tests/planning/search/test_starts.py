from __future__ import annotations

from mountain import mountain

from gradtool.planning.search.certificate import Certificate, certificates
from gradtool.planning.search.descent import Descent
from gradtool.planning.search.starts import first


def test_the_integer_programme_is_the_first_start_and_enough_where_it_is_exact():
    work = mountain()
    plain = work.weigh({})
    search = Descent(work, plain.peak - 64, 10**5)
    certificate = next(certificates(work, search.budget, plain))
    search.enough = certificate.bound
    found, how = first(search, certificate)

    assert (found.extra, how) == (1, "integer programme")


def test_without_any_hint_the_search_drops_greedily():
    search = Descent(mountain(), 5 * 64, 10**5)
    found, how = first(search, Certificate(0, "none"))

    assert (found.extra, how) == (1, "greedy drops")


def test_large_programs_start_from_the_cut_alone():
    """With a limit of few trials nothing is searched for: the cut's choice is all."""
    work = mountain()
    plain = work.weigh({})
    search = Descent(work, plain.peak - 64, 10**3)
    certificate = next(certificates(work, search.budget, plain, effort=0.001))
    found, how = first(search, certificate)

    assert not search.is_thorough
    assert how == "minimum cut"
    assert found.weighed.peak <= search.budget


def test_what_is_no_better_is_not_taken():
    search = Descent(mountain(), 5 * 64, 10**5)
    best = search.fit(search.weigh({}))

    assert first(search, Certificate(0, "none"), best) == (best, "")
