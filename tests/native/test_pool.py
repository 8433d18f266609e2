import ctypes
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from native_calls import needs_library, threads

from gradtool.native import library

pytestmark = needs_library


def probe(count, turns=20000, slots=8):
    """The slot of each chunk."""
    written = np.full(count, -1, np.int64)
    library.load().handle.gt_probe(
        ctypes.c_void_p(written.ctypes.data),
        ctypes.c_int64(count), ctypes.c_int64(turns), ctypes.c_int64(slots),
    )  # fmt: skip
    return written


@pytest.mark.parametrize("count", [0, 1, 2, 7, 500])
@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("slots", [1, 2, 8])
def test_every_chunk_runs_once_in_a_slot_that_exists(count, workers, slots):
    with threads(workers):
        used = probe(count, turns=100, slots=slots)

    assert ((used >= 0) & (used < min(workers, slots))).all()


def test_more_threads_than_one_take_part():
    with threads(2):
        found = {slot for _ in range(20) for slot in probe(200).tolist()}

    assert found == {0, 1}


def test_calls_from_many_threads_do_not_disturb_each_other():
    wrong = []

    def call():
        for _ in range(50):
            used = probe(20, turns=200)
            if (used < 0).any():
                wrong.append(used)

    with threads(3):
        callers = [threading.Thread(target=call) for _ in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()

    assert wrong == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_starts_its_own_threads():
    code = """
import os, sys
sys.path[:0] = [{tests!r}, {tests!r} + "/native"]
from test_pool import probe, threads
with threads(2):
    assert set(sum((probe(200).tolist() for _ in range(20)), [])) == {{0, 1}}
    child = os.fork()
    if child == 0:
        found = set(sum((probe(200).tolist() for _ in range(20)), []))
        os._exit(0 if found == {{0, 1}} else 7)
    assert os.waitpid(child, 0)[1] == 0
    assert set(sum((probe(200).tolist() for _ in range(20)), [])) == {{0, 1}}
"""
    tests = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    done = subprocess.run(
        [sys.executable, "-c", code.format(tests=tests)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")


def test_waiting_takes_no_processor_time():
    import time

    with threads(2):
        probe(200)
        before = time.process_time()
        time.sleep(0.3)
        assert time.process_time() - before < 0.05
