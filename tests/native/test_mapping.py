import mmap
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from native_calls import needs_library

from gradtool.io.file_tensors import MAPS
from gradtool.native import mapping

pytestmark = [needs_library, pytest.mark.skipif(not MAPS, reason="this system maps no files")]

PAGES = 8 * mmap.PAGESIZE


def mapped(path, size=PAGES):
    path.write_bytes(bytes(range(256)) * (size // 256))
    with path.open("rb") as file:
        held = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    return np.frombuffer(held, np.uint8)


@pytest.mark.parametrize("left", [0, mmap.PAGESIZE, 3 * mmap.PAGESIZE])
def test_reads_behind_an_end_that_moved_give_zeros_and_are_told(left, tmp_path):
    found = mapped(tmp_path / "data")
    watch = mapping.watch(found.ctypes.data, PAGES)
    was_lost = watch.is_lost()
    os.truncate(tmp_path / "data", left)

    assert not was_lost
    assert found[:left].sum() == left // 256 * sum(range(256))
    assert not found[left:].any()
    assert watch.is_lost()
    watch.end()


def test_a_place_is_free_again(tmp_path):
    found = mapped(tmp_path / "data")
    watches = []
    for _ in range(3):
        watches.append(mapping.watch(found.ctypes.data, PAGES))
        watches[-1].end()

    assert len({watch.number for watch in watches}) == 1
    assert not watches[0].is_lost()


OTHER = """
import faulthandler, mmap, os, sys
import numpy as np
from gradtool.native import mapping
if sys.argv[2] == "told":
    faulthandler.enable()
made = []
for name in "ab":
    path = os.path.join(sys.argv[1], name)
    open(path, "wb").write(bytes(4 * mmap.PAGESIZE))
    with open(path, "rb") as file:
        made.append(np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8))
mapping.watch(made[0].ctypes.data, made[0].size)
os.truncate(os.path.join(sys.argv[1], "b"), 0)
made[1].any()
"""


@pytest.mark.skipif(
    not {"ASAN_OPTIONS", "TSAN_OPTIONS"}.isdisjoint(os.environ), reason="sanitizers take signals"
)
@pytest.mark.parametrize("told", ["told", "untold"])
def test_what_nobody_watches_ends_the_process_as_before(told, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", OTHER, str(tmp_path), told], capture_output=True, text=True,
        check=False,
    )  # fmt: skip

    assert done.returncode == -signal.SIGBUS
    assert ("Bus error" in done.stderr) == (told == "told")
