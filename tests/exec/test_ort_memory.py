import numpy as np
import pytest

from gradtool.exec import ort_memory

MIB = 2**20


pytestmark = pytest.mark.skipif(
    ort_memory.begin() is None,
    reason="this system does not reset the high-water mark of a process",
)


def test_what_was_there_before_does_not_count():
    held = np.ones(64 * MIB, np.uint8)
    start = ort_memory.begin()

    assert held.all()
    assert ort_memory.growth(start) < 32 * MIB


def test_memory_that_was_given_back_counts():
    start = ort_memory.begin()
    held = np.ones(64 * MIB, np.uint8)
    del held

    assert 56 * MIB < ort_memory.growth(start) < 80 * MIB


def test_an_earlier_peak_is_forgotten():
    held = np.ones(64 * MIB, np.uint8)
    del held
    start = ort_memory.begin()

    assert ort_memory.growth(start) < 32 * MIB


def test_pages_of_files_do_not_count(tmp_path):
    (tmp_path / "weights").write_bytes(bytes(64 * MIB))
    start = ort_memory.begin()
    mapped = np.memmap(tmp_path / "weights", np.uint8, "r")

    assert not mapped.any()
    assert ort_memory.growth(start) < 32 * MIB


def test_without_a_start_there_is_no_growth():
    assert ort_memory.growth(None) is None
