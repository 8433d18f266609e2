"""Mutants of models: some seconds of them, always the same. More: `benchmarks/fuzz.py`."""

import pytest
from fuzzing import Seed, Tally, fuzz, named, seeds
from limited import MOST_BYTES, Ended

SECONDS, MUTANTS = 5, 25


@pytest.fixture(scope="module")
def pool() -> list[Seed]:
    return seeds(zoo=False)


@pytest.mark.exhaustive
def test_no_command_fails_on_a_mutant(pool):
    tally = Tally()
    for tally in fuzz(pool, SECONDS):
        assert tally.defects == {}
        if tally.mutants >= MUTANTS:
            break

    assert tally.mutants > 0
    assert tally.runs == 3 * tally.mutants
    assert {0, 2} <= set(tally.codes)


def test_a_mutant_is_made_again_from_its_numbers(pool):
    (first, one), (second, other) = named(5, 1, pool), named(5, 1, pool)

    assert first is second
    assert one.SerializeToString() == other.SerializeToString()
    assert one.SerializeToString() != first.model.SerializeToString()


@pytest.mark.parametrize(
    ("ended", "why"),
    [
        (Ended(70, 1.0, 0, "", "gradtool: a bug"), "exit 70"),
        (Ended(-11, 1.0, 0, "", ""), "died of signal 11"),
        (Ended(-14, 1.0, 0, "", ""), "took"),
        (Ended(2, 21.0, 0, "", ""), "took 21.0 s"),
        (Ended(2, 1.0, MOST_BYTES + 1, "", ""), "took 1024 MiB"),
        (Ended(4, 1.0, 0, "", "gradtool: out of memory"), "ran out of memory"),
    ],
)
def test_a_defect_is_told(ended, why):
    assert why in ended.defect()


def test_a_refusal_is_no_defect():
    assert Ended(2, 1.0, 10, "", "gradtool: model.onnx: is empty").defect() == ""
