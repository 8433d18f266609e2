"""Tables on terminals and in pipes, with few columns, few colours and few characters."""

import json
import os
import pty
import subprocess
import sys

import pytest

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


def on_a_terminal(folder, *arguments, columns=80, **environment):
    """What a terminal of so many columns is sent."""
    ours, theirs = pty.openpty()
    program = [sys.executable, "-m", "gradtool", *arguments]
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


@pytest.mark.usefixtures("tiny_model")
@pytest.mark.parametrize("command", COMMANDS[:6])
def test_tables_fit_eighty_columns(tmp_path, command):
    sent = on_a_terminal(tmp_path, *command, NO_COLOR="1")

    table = [line for line in sent.splitlines() if line.startswith(" ")]
    assert table
    assert max(map(len, table)) <= 80


@pytest.mark.usefixtures("tiny_model")
def test_a_terminal_gets_colours_and_a_pipe_none(tmp_path, shell):
    command = ("report", "tiny.onnx", "--batch", "4")

    assert "\x1b[" in on_a_terminal(tmp_path, *command)
    assert b"\x1b" not in shell(*command).stdout
    assert "\x1b" not in on_a_terminal(tmp_path, *command, NO_COLOR="1")
    assert "\x1b" not in on_a_terminal(tmp_path, "--color", "never", *command)
    assert b"\x1b[" in shell("--color", "always", *command).stdout


@pytest.mark.usefixtures("tiny_model")
@pytest.mark.parametrize("command", COMMANDS)
def test_an_ascii_stdout_gets_ascii(shell, command):
    done = shell(*command, PYTHONIOENCODING="ascii")

    assert done.returncode == 0
    assert done.stdout.isascii()
    assert b"---" in done.stdout
    assert b"\\u" not in done.stdout
    assert b"\\x" not in done.stdout


@pytest.mark.usefixtures("tiny_model")
@pytest.mark.parametrize("command", COMMANDS)
def test_json_is_one_document_on_stdout(shell, command):
    done = shell(*command, "--format", "json")

    assert done.returncode == 0
    assert json.loads(done.stdout)["schema_version"] == 1


@pytest.mark.usefixtures("tiny_model")
def test_numbers_are_whole_in_a_pipe(shell):
    lines = shell("report", "tiny.onnx", "--batch", "4", COLUMNS="20").stdout.decode().splitlines()

    assert FOOTER in lines


@pytest.mark.usefixtures("tiny_model")
@pytest.mark.parametrize(
    "command",
    [
        ("mirror", "--report", "tiny.onnx", "--memory", "1MiB"),
        ("mirror", "--explain", "e", "tiny.onnx"),
        ("mirror", "tiny.onnx", "--force"),
        ("recompute", "tiny.onnx", "--strategy", "sqrt", "--force"),
        ("report", "tiny.onnx"),
        ("grad", "tiny.onnx", "--force"),
    ],
)
def test_every_line_fits_a_terminal(tmp_path, command):
    sent = on_a_terminal(tmp_path, *command, NO_COLOR="1")

    assert max(map(len, sent.splitlines())) <= 80
    assert "…" not in sent


@pytest.mark.usefixtures("tiny_model")
def test_a_dumb_terminal_and_a_narrow_one_lose_nothing(tmp_path):
    command = ("mirror", "--report", "tiny.onnx", "--batch", "4")
    wide = on_a_terminal(tmp_path, *command, columns=200, NO_COLOR="1")
    narrow = on_a_terminal(tmp_path, *command, columns=40, NO_COLOR="1", TERM="dumb")

    def words(text):
        return [word for word in text.split() if not set(word) & set("▁▂▃▄▅▆▇█─")]

    assert words(wide) == words(narrow)


@pytest.mark.parametrize("command", ["grad", "mirror", "recompute"])
def test_no_model_goes_to_a_terminal_and_none_is_made_first(run, tiny_model, monkeypatch, command):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    budget = ("--budget", "1KiB") if command == "recompute" else ()
    outcome = run(command, tiny_model, "-o", "-", "--loss", "no_such_loss", *budget)

    assert outcome.code == 2
    assert outcome.err.endswith("standard output is a terminal: name a file with -o, or redirect\n")
    assert "no_such_loss" not in outcome.err
