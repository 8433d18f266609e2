import contextlib
import io
import os
import subprocess
import sys

import pytest

from gradtool.reports import progress
from gradtool.reports.progress import bar

PROGRAM = """
import sys, time
from gradtool.reports.progress import bar

with bar("count\\x1b[31m {seconds} [bold]", 100) as task:
    for _ in range(10):
        time.sleep(float(sys.argv[1]) / 10)
        task.advance(10)
        print("result")
"""


def on_a_terminal(seconds, **environment):
    """What the program writes to a terminal on stderr, and to a pipe on stdout."""
    pty = pytest.importorskip("pty", reason="needs pseudo-terminals")
    ours, theirs = pty.openpty()
    clean = {key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "COLUMNS"}}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(seconds)],
        env={
            **clean,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYTHONIOENCODING": "utf-8",
            "TERM": "xterm",
            **environment,
        },
        stdout=subprocess.PIPE,
        stderr=theirs,
        check=True,
    )
    os.close(theirs)
    written = b""
    with contextlib.suppress(OSError):  # the end of a terminal that its program has left
        while chunk := os.read(ours, 65536):
            written += chunk
    os.close(ours)
    return written.decode(), done.stdout.decode()


def test_off_a_terminal_nothing_is_written(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("FORCE_COLOR", "1")

    with bar("work", 3) as task:
        task.advance()
        task.advance(2)

    assert stream.getvalue() == ""


def test_a_short_task_shows_nothing():
    shown, results = on_a_terminal(0)

    assert shown == ""
    assert results == "result\n" * 10


def test_a_long_task_shows_its_escaped_name_and_keeps_results_on_stdout():
    shown, results = on_a_terminal(1.2)

    assert r"count\x1b[31m {seconds} [bold]" in shown
    assert "/100" in shown
    assert results == "result\n" * 10


@pytest.mark.exhaustive
def test_an_ascii_terminal_gets_ascii():
    shown, _ = on_a_terminal(1.2, PYTHONIOENCODING="ascii")

    assert shown.isascii()
    assert "count" in shown


@pytest.mark.exhaustive
def test_a_dumb_terminal_gets_nothing():
    shown, _ = on_a_terminal(1.2, TERM="dumb")

    assert shown == ""


def test_a_failure_passes_through(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())

    with pytest.raises(KeyError), bar("work"):
        raise KeyError


def test_rounds_of_unknown_number_never_go_back_and_never_end():
    shown = progress._Shown("work", 2, "auto")
    parts = []
    for done in (1, 2, 4, 1, 4, 0, 4, 2):
        shown.approach(done, 4)
        parts.append(shown._part)

    assert parts == sorted(parts)
    assert parts[2] == 0.5
    assert parts[4] == 0.75
    assert parts[-1] < 1

    shown.advance()
    shown.approach(4, 4)
    assert shown._part == 0.5
