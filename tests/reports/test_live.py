import io
from types import SimpleNamespace

import numpy as np
import pytest
from rich.cells import cell_len
from terminals import on_terminal

from gradtool.reports import console, live
from gradtool.training.train_log import LIVE, Now, clauses

WIDTHS = (40, 120)
ENDS = ("done after step 40: the last loss is", "wrote net.trained.onnx")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(live, "sys", SimpleNamespace(stderr=stream))
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return stream


def states():
    """Steps of short and long trainings, numbers of few and of many digits."""
    for step, steps in ((1, 3), (12, 300), (99_999, 1_000_000), (7, None)):
        for seconds in (3e-6, 0.0123, 4321.0):
            for loss in (0.25, -1.2345e-12, float("nan")):
                left = None if steps is None or step == 1 else (steps - step) * seconds
                told = (step, steps, step // 2, loss, 1.5e-4, seconds, left, 1 << 33, 999)
                yield Now(*told, None if steps is None else 32), steps


@pytest.mark.parametrize(("encoding", "color"), [("utf-8", "always"), ("ascii", "never")])
def test_no_line_is_as_wide_as_the_terminal(terminal, monkeypatch, encoding, color):
    monkeypatch.setattr(Terminal, "encoding", encoding)
    for width in (*range(20, 64, 3), 80, 100, 130):
        monkeypatch.setenv("COLUMNS", str(width))
        for now, steps in states():
            terminal.seek(0)
            terminal.truncate()
            live.Line(color).show(clauses(now, LIVE), steps and now.step / steps)
            text = terminal.getvalue().removeprefix("\r").removesuffix("\x1b[K")
            for code in (live.CYAN, live.DIM, live.PLAIN):
                assert (code in text) <= (color == "always")
                text = text.replace(code, "")

            assert cell_len(text) < width
            assert text.isascii() >= (encoding == "ascii")
            assert "step" in text or width < 30
            if width >= 60 and steps is not None:
                assert {*"━─=-"} & {*text[: live.LEAST]}
                assert now.left is None or "left " in text
    live.clear()


@pytest.mark.parametrize(
    ("examples", "seconds", "said"),
    [(32, 0.01, "3,200 examples/s"), (32, 2.0, "16 examples/s"), (1, 3600.0, "0.000278 examples/s"),
     (64, 5.2e-5, "1,230,000 examples/s"), (32, 0.0, None), (None, 0.01, None)],
)  # fmt: skip
def test_a_line_says_how_many_examples_a_second_there_are(examples, seconds, said):
    found = clauses(Now(3, 9, 0, 0.5, 0.1, seconds, None, 8, None, examples))

    assert [clause for clause in found if "examples" in clause] == ([said] if said else [])


def test_a_line_is_taken_away_before_another_is_written(terminal):
    live.Line().show(["step 1"])
    with live.away():
        terminal.write("done\n")

    assert terminal.getvalue() == "\rstep 1\x1b[K\r\x1b[Kdone\n"


@pytest.mark.parametrize("name", ["dumb", "unknown"])
def test_a_terminal_without_escapes_has_no_such_line(terminal, monkeypatch, name):
    monkeypatch.setenv("TERM", name)
    live.Line().show(["step 1"])

    assert not terminal.getvalue()


def test_a_quiet_command_has_no_such_line(terminal):
    live.Line(quiet=True).show(["step 1"])

    assert not terminal.getvalue()


@pytest.mark.parametrize(("told", "columns"), [("100", 100), ("0", 80), ("", 80), ("x", 80)])
def test_columns_are_told_or_usual(terminal, monkeypatch, told, columns):
    monkeypatch.setenv("COLUMNS", told)

    assert console.columns(terminal) == columns
    assert console.columns(io.StringIO()) == console.UNBOUNDED


@pytest.fixture
def training(tmp_path, model):
    """Trains a small network on a terminal; options follow."""
    rng = np.random.default_rng(0)
    body = "net (float[N, 64] x) => (float[N, 4] y) { y = MatMul (x, w) }"
    model(body, "net.onnx", w=rng.normal(size=(64, 4)).astype("f4"))
    data = {"x": rng.normal(size=(64, 64)).astype("f4"), "labels": rng.integers(0, 4, 64)}
    np.savez(tmp_path / "net.npz", **data)

    def train(columns, *more, **how):
        line = ("train", "net.onnx", "--data", "net.npz", "--batch", 8, "--steps", 40, *more)
        return on_terminal(line, columns, folder=tmp_path, **how)

    return train


@pytest.mark.sample(2)
@pytest.mark.parametrize("columns", WIDTHS)
def test_a_training_ends_its_line_and_stays_in_the_terminal(training, columns):
    seen = training(columns)

    assert seen.code == 0
    assert seen.too_wide() == []
    assert any("step 1/40" in text for _, text in seen.written())
    assert any("examples/s" in text for _, text in seen.written()) == (columns > 80)
    assert [line for line in seen.lines if line.startswith(ENDS)] == seen.lines[-2:] or columns < 60
    assert not any("step 1/40" in line or "━" in line for line in seen.lines)


@pytest.mark.exhaustive
def test_a_training_on_a_terminal_that_is_resized(training):
    seen = training(120, "--steps", 1500, resizes=[(3, 44), (5, 100), (7, 61)])

    assert seen.code == 0
    assert seen.too_wide() == []
    assert {columns for columns, _ in seen.pieces} == {120, 44, 100, 61}


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "environment",
    [
        {"TERM": "dumb"},
        {"NO_COLOR": "1"},
        {"FORCE_COLOR": "1"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"COLUMNS": "200"},
    ],
    ids=lambda environment: next(iter(environment)),
)
def test_a_training_in_an_environment(training, environment):
    seen = training(50, environment=environment)
    text = seen.raw

    assert seen.code == 0
    assert (b"\x1b[36m" in text) == ("NO_COLOR" not in environment and "TERM" not in environment)
    assert (b"\x1b" in text) == ("TERM" not in environment)
    assert text.isascii() or "LC_ALL" not in environment
    live_lines = [line for _, line in seen.written() if line.startswith(("━", "─", "=", "-"))]
    assert bool(live_lines) == ("TERM" not in environment)
    assert all(cell_len(line) < 50 for line in live_lines)
    assert b"done after step 40" in text


@pytest.mark.exhaustive
@pytest.mark.usefixtures("training")
def test_in_a_pipe_there_are_plain_lines(shell, tmp_path):
    done = shell("train", "net.onnx", "--data", "net.npz", "--batch", 8, "--steps", 40)

    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stderr
    assert b"\r" not in done.stderr
    assert b"step 40/40  epoch 5  loss " in done.stderr
    assert (tmp_path / "net.trained.onnx").exists()
