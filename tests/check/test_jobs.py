"""Cases side by side, from the cache, and in processes that die."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
import time

import pytest
from gates import case, dies_at_four, metrics, tensor, write

from gradtool.check import Outcome, cache, jobs
from gradtool.check.cache import key_of


def cases(tmp_path, *batches):
    write(tmp_path / "net.onnx")
    return [case(f"net{n}", folder=tmp_path, dims={"batch": n}) for n in batches]


@pytest.mark.exhaustive
def test_processes_find_what_one_finds_in_the_order_of_the_cases(tmp_path):
    listed = cases(tmp_path, 8, 2)
    told = []

    side_by_side = jobs.outcomes(listed, jobs=2, advance=lambda: told.append(1))

    assert side_by_side == jobs.outcomes(listed, jobs=1)
    assert len(told) == 2


@pytest.mark.exhaustive
def test_a_process_that_dies_is_an_error_of_its_case_only(tmp_path, monkeypatch):
    good, bad = cases(tmp_path, 2, 4)
    monkeypatch.setattr(jobs, "outcome_of", dies_at_four)

    first, second = jobs.outcomes([good, bad], jobs=2)

    assert first == Outcome(None, "lives")
    assert (second.error, second.exit_code) == (jobs.DIED, 70)


def interrupted():
    with jobs._pool(1) as pool:
        pool.submit(time.sleep, 3600)
        raise KeyboardInterrupt


def test_an_interrupt_ends_what_still_runs():
    """If it did not, this would take an hour."""
    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert not multiprocessing.active_children()


KILLED = """
import os, signal, time
from gradtool.check import jobs

if __name__ == "__main__":
    with jobs._pool(2) as pool:
        first = [pool.submit(os.getpid), pool.submit(time.sleep, 3600)]
        print(first[0].result(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="nothing is killed here")
def test_no_process_outlives_one_that_is_killed(tmp_path):
    """What they write to is closed when the last of them, idle or at work, is gone."""
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    child = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE)

    said, _ = child.communicate(timeout=60)

    assert said.strip().isdigit()
    assert child.returncode == -signal.SIGKILL


def test_the_cache_gives_back_what_was_put():
    found = metrics({"a": tensor()}, kept={"a": "why"}, peak=5)

    cache.put("k", found)

    assert cache.get("k") == found
    assert cache.get("other") is None
    assert cache.get(None) is None


def test_the_key_is_of_content_and_options_not_of_names(tmp_path):
    one, other = cases(tmp_path, 2, 4)
    copy = tmp_path / "copy"
    copy.mkdir()
    write(copy / "net.onnx")
    moved = case("renamed", folder=copy, dims={"batch": 2})

    assert key_of(one) == key_of(moved)
    assert key_of(one) != key_of(other)
    assert key_of(one) != key_of(case(folder=tmp_path, dims={"batch": 2}, gradient={"ste": True}))
    write(copy / "net.onnx", width=17)
    assert key_of(one) != key_of(moved)


def test_what_depends_on_the_code_of_others_has_no_key(tmp_path):
    (checked,) = cases(tmp_path, 2)
    keyed = {
        loss: key_of(case(folder=tmp_path, dims=checked.dims, gradient={"loss": [loss]})) is None
        for loss in ("ce:out", "0.5*ce:out", "my.losses:dice", "0.5*my.losses:dice")
    }

    assert keyed == {
        "ce:out": False, "0.5*ce:out": False, "my.losses:dice": True, "0.5*my.losses:dice": True,
    }  # fmt: skip
    assert key_of(case(folder=tmp_path, model="gone.onnx")) is None
