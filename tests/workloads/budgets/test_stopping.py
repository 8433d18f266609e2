"""A clock that ends the work in a block."""

import gc
import itertools
import threading
import time
import weakref

import pytest

from gradtool.workloads.budgets.stopping import TimeIsUp, deadline, time_limit


def endless():
    for _ in itertools.count():
        pass


def test_work_without_end_is_ended():
    with pytest.raises(TimeIsUp), time_limit(0.01):
        endless()


def linger():
    end = time.perf_counter() + 0.03
    while time.perf_counter() < end:
        pass


class Finalized:
    def __del__(self):
        linger()


def before_no_end(clean):
    clean()
    endless()


def collected():
    gc.callbacks.append(lambda _phase, _info: linger())
    try:
        gc.collect()
    finally:
        gc.callbacks.pop()


def finalized():
    Finalized()


def called_back():
    weakref.finalize(type("Plain", (), {})(), linger)


@pytest.mark.parametrize("clean", [collected, finalized, called_back])
def test_an_end_while_python_cleans_up_comes_after_it(clean):
    with pytest.raises(TimeIsUp), time_limit(0.01):
        before_no_end(clean)


def test_work_that_ends_in_time_is_left_alone():
    with time_limit(60):
        found = sum(range(10))

    assert found == 45


def test_a_search_cannot_take_the_end_for_an_answer():
    assert not issubclass(TimeIsUp, Exception)


def test_another_thread_runs_to_its_end():
    found = []

    def work():
        with time_limit(1e-6):
            found.append(sum(range(100_000)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert found == [4999950000]


def test_the_end_is_near_before_the_seconds_are_over():
    assert deadline(0)()
    assert not deadline(3600)()
    assert not deadline(None)()
