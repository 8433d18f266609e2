"""Files that somebody cuts while a command reads them: one line, never a signal."""

import pytest
from conftest import GOLDEN
from kills import is_supported
from native_calls import needs_library
from shrinking import SIZES, Cutting, add_wide

pytestmark = pytest.mark.skipif(not is_supported(), reason="needs processes that fork")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return add_wide(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize(
    "name", ["grad inline", "run", pytest.param("run mapped", marks=needs_library)]
)
def test_a_file_that_shrinks_while_it_is_read_is_refused_in_one_line(name, whole, tmp_path):
    """`benchmarks/shrinking.py` cuts every file after every look at it."""
    cutting = Cutting(whole, tmp_path / "place", name)
    for turn, size in enumerate(SIZES, 1):
        number = 1 + int(cutting.looks * (turn * GOLDEN % 1))
        assert cutting.trial(number, size).said in ("refused", "right"), (number, size)
