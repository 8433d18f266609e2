import io
import os
import subprocess
import sys

import pytest

from gradtool.reports.console import draws, stderr_console, stdout_console, wants_color

PROGRAM = """
from gradtool.reports.console import stdout_console
from gradtool.text.table import Table, render
from gradtool.text.layout import Column

console = stdout_console()
columns = (Column("tensor", kind="name"), Column("bytes", "right", "number"))
render(Table(columns, (("\\u91cd[bold]\\u2026" + "x" * 100, "3.41 GiB"),), "title"), console)
console.print("\\u2026")
"""


def run(program, **environment):
    clean = {key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "COLUMNS"}}
    clean.pop("FORCE_COLOR", None)
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={**clean, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
        capture_output=True,
        check=True,
    ).stdout


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.mark.parametrize(
    ("environment", "flag", "terminal", "wanted"),
    [
        ({}, "auto", True, True),
        ({}, "auto", False, False),
        ({}, "always", False, True),
        ({}, "never", True, False),
        ({"NO_COLOR": "1"}, "auto", True, False),
        ({"NO_COLOR": ""}, "auto", True, True),
        ({"NO_COLOR": "1"}, "always", True, True),
        ({"FORCE_COLOR": "1"}, "auto", False, True),
        ({"FORCE_COLOR": "0"}, "auto", False, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, "auto", True, False),
        ({"FORCE_COLOR": "1"}, "never", True, False),
        ({"TERM": "dumb"}, "auto", True, False),
    ],
)
def test_the_flag_wins_then_the_environment_then_the_terminal(
    monkeypatch, environment, flag, terminal, wanted
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    stream = Terminal() if terminal else io.StringIO()
    assert wants_color(flag, stream) is wanted

    monkeypatch.setattr(sys, "stdout", stream)
    stdout_console(flag).print("x", style="bold red")
    assert ("\x1b" in stream.getvalue()) is wanted


def test_a_closed_or_missing_stream_is_no_terminal():
    stream = Terminal()
    stream.close()

    assert not wants_color("auto", stream)
    assert not wants_color("auto", None)


def test_off_a_terminal_lines_are_as_long_as_they_are(capsys):
    stdout_console().print("resnet50[batch=32] " * 20)
    stderr_console().print("x" * 500)

    captured = capsys.readouterr()
    assert captured.out == "resnet50[batch=32] " * 20 + "\n"
    assert captured.err == "x" * 500 + "\n"


def test_an_ascii_pipe_gets_ascii():
    out = run(PROGRAM, LC_ALL="C", PYTHONIOENCODING="ascii")

    assert out.decode("ascii").splitlines() == [
        "title",
        " tensor" + " " * (115 - 6) + "      bytes",
        " " + "-" * (115 + 3 + 8),
        " \\u91cd[bold]..." + "x" * 100 + "   3.41 GiB",
        "\\u2026",
    ]


def test_a_utf8_pipe_gets_whole_lines_and_no_escape():
    out = run(PROGRAM, PYTHONIOENCODING="utf-8", TERM="xterm").decode()

    assert "重[bold]…" + "x" * 100 + "   3.41 GiB" in out
    assert "\x1b" not in out


def test_forced_colour_in_a_pipe_moves_no_cursor_and_cuts_nothing():
    out = run(PROGRAM, PYTHONIOENCODING="utf-8", FORCE_COLOR="1", TERM="xterm").decode()

    assert "\x1b[1mtitle\x1b[0m" in out
    assert "重[bold]…" + "x" * 100 + "   3.41 GiB" in out


def test_drawing_needs_the_encoding_for_it(monkeypatch):
    for encoding, able in (("utf-8", True), ("ascii", False), ("cp1252", False)):
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        monkeypatch.setattr(sys, "stdout", stream)

        assert draws(stdout_console()) is able


def test_importing_the_package_leaves_rich_alone():
    modules = ("reports.console", "text.names", "text.units", "text.table", "reports.memory",
               "reports.progress")  # fmt: skip
    imports = "".join(f"import gradtool.{module}\n" for module in modules)

    assert run(f"{imports}import sys; print('rich' in sys.modules, end='')") == b"False"
