"""Tables on terminals and in pipes, with few columns, few colours and few characters."""

import json
import os
import pty
import subprocess
import sys

import pytest

from gradtool.commands.output import Reporter
from gradtool.reports.memory import FOOTER

COMMANDS = [
    ("mirror", "--report", "tiny.onnx"),
    ("mirror", "--report", "--by", "tensor", "tiny.onnx", "--batch", "4"),
    ("report", "tiny.onnx", "--batch", "4"),
    ("run", "tiny.onnx", "--batch", "4"),
    ("ops",),
    ("ops", "tiny.onnx"),
    ("doctor",),
]


GRADTOOL = ("-m", "gradtool")
# Runs each command line of a list in one process, and ends what it prints with a null.
EACH = """if True:
    import json, sys
    from gradtool import cli
    for arguments in json.loads(sys.argv[1]):
        assert cli.run(arguments) == 0
        print("\\0", end="", flush=True)
"""


def each(commands):
    """The arguments of Python that run these command lines, one after the other."""
    return ["-c", EACH, json.dumps(commands)]


def on_a_terminal(folder, *arguments, columns=80, **environment):
    """What a terminal of so many columns is sent by Python with these arguments."""
    ours, theirs = pty.openpty()
    program = [sys.executable, *arguments]
    inherited = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "CI"}}
    process = subprocess.Popen(
        program,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env=inherited | {"COLUMNS": str(columns), "TERM": "xterm-256color"} | environment,
    )
    os.close(theirs)
    chunks = []
    try:
        while chunk := os.read(ours, 65536):
            chunks.append(chunk)
    except OSError:
        pass  # the other side is closed
    os.close(ours)
    assert process.wait() == 0
    return b"".join(chunks).decode()


def into_pipes(folder, *commands, **environment):
    """What each of these command lines writes to a pipe."""
    done = subprocess.run(
        [sys.executable, *each(commands)],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        check=True,
    )
    *printed, rest = done.stdout.split(b"\0")
    assert len(printed) == len(commands)
    assert rest == b""
    return printed


@pytest.mark.exhaustive
@pytest.mark.usefixtures("tiny_model")
def test_tables_fit_eighty_columns(tmp_path):
    *printed, _ = on_a_terminal(tmp_path, *each(COMMANDS[:6]), NO_COLOR="1").split("\0")

    assert len(printed) == 6
    for sent in printed:
        table = [line for line in sent.splitlines() if line.startswith(" ")]
        assert table
        assert max(map(len, table)) <= 80


@pytest.mark.exhaustive
@pytest.mark.usefixtures("tiny_model")
def test_a_terminal_gets_colours_and_a_pipe_none(tmp_path):
    command = ("report", "tiny.onnx", "--batch", "4")

    printed = on_a_terminal(tmp_path, *each([command, ("--color", "never", *command)])).split("\0")
    assert ["\x1b[" in sent for sent in printed] == [True, False, False]
    assert "\x1b" not in on_a_terminal(tmp_path, *GRADTOOL, *command, NO_COLOR="1")
    plain, coloured = into_pipes(tmp_path, command, ("--color", "always", *command))
    assert b"\x1b" not in plain
    assert b"\x1b[" in coloured


@pytest.mark.exhaustive
@pytest.mark.usefixtures("tiny_model")
def test_an_ascii_stdout_gets_ascii(tmp_path):
    for printed in into_pipes(tmp_path, *COMMANDS, PYTHONIOENCODING="ascii"):
        assert printed.isascii()
        assert b"---" in printed
        assert b"\\u" not in printed
        assert b"\\x" not in printed


@pytest.mark.exhaustive
@pytest.mark.usefixtures("tiny_model")
def test_json_is_one_document_on_stdout(tmp_path):
    for printed in into_pipes(tmp_path, *((*words, "--format", "json") for words in COMMANDS)):
        assert json.loads(printed)["schema_version"] == 1


@pytest.mark.exhaustive
@pytest.mark.usefixtures("tiny_model")
def test_numbers_are_whole_in_a_pipe(shell):
    line = ("report", "tiny.onnx", "--batch", "4", "--kernels", "numpy")
    lines = shell(*line, COLUMNS="20").stdout.decode().splitlines()

    assert FOOTER in lines


@pytest.mark.exhaustive
@pytest.mark.usefixtures("tiny_model")
def test_every_line_fits_a_terminal(tmp_path):
    commands = [
        ("mirror", "--report", "tiny.onnx", "--memory", "1MiB"),
        ("mirror", "--explain", "e", "tiny.onnx"),
        ("mirror", "tiny.onnx", "--force"),
        ("recompute", "tiny.onnx", "--strategy", "sqrt", "--force"),
        ("report", "tiny.onnx"),
        ("grad", "tiny.onnx", "--force"),
    ]
    sent = on_a_terminal(tmp_path, *each(commands), NO_COLOR="1")

    assert max(map(len, sent.replace("\0", "").splitlines())) <= 80
    assert "…" not in sent


@pytest.mark.exhaustive
@pytest.mark.usefixtures("tiny_model")
def test_a_dumb_terminal_and_a_narrow_one_lose_nothing(tmp_path):
    command = ("mirror", "--report", "tiny.onnx", "--batch", "4")
    wide = on_a_terminal(tmp_path, *GRADTOOL, *command, columns=200, NO_COLOR="1")
    narrow = on_a_terminal(tmp_path, *GRADTOOL, *command, columns=40, NO_COLOR="1", TERM="dumb")

    def words(text):
        return [word for word in text.split() if not set(word) & set("▁▂▃▄▅▆▇█─")]

    assert set(words(wide)) <= set(words(narrow))  # a column that sticks out follows below


@pytest.mark.parametrize("command", ["grad", "mirror", "recompute"])
def test_no_model_goes_to_a_terminal_and_none_is_made_first(run, tiny_model, monkeypatch, command):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    budget = ("--budget", "1KiB") if command == "recompute" else ()
    outcome = run(command, tiny_model, "-o", "-", "--loss", "no_such_loss", *budget)

    assert outcome.code == 2
    assert outcome.err.endswith("standard output is a terminal: name a file with -o, or redirect\n")
    assert "no_such_loss" not in outcome.err


def test_a_remark_is_made_once_a_command(capsys):
    reporter = Reporter()
    for _ in range(2):
        reporter.say("warning: x")
        Reporter().say("y")

    assert capsys.readouterr().err.splitlines() == ["warning: x", "y", "y"]
