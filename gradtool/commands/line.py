"""Run of a command line: its outcome as an exit code, its error as one line."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click

from gradtool.commands.group import Passed, group
from gradtool.errors import GradtoolError, Interrupted, UserCodeError
from gradtool.graph.error_context import NodeFailed
from gradtool.text.warned import one_line_warnings
from gradtool.text.words import suggest


def run(given: list[str]) -> int:
    """The exit code of one command; see `gradtool.errors` for the table."""
    try:
        with _no_collector(), one_line_warnings():
            outcome = group.main(
                given, prog_name="gradtool", standalone_mode=False, obj=tuple(given)
            )
        if sys.stdout is not None:
            sys.stdout.flush()
    except Passed as passed:
        return explain(passed.__cause__ or passed, given)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - a bug too is one line and a code
        return explain(error, given)
    return outcome if isinstance(outcome, int) else 0


@contextmanager
def _no_collector() -> Iterator[None]:
    """Without Python's search for cyclic garbage.

    A graph is one web of cycles that lives as long as the command: searching it finds nothing,
    and takes as long as the work itself.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def explain(error: BaseException, given: list[str], where: str = "") -> int:
    """Print an error in one line, after `where`, and return the exit code."""
    match error:
        case GradtoolError():
            if any(isinstance(each, NodeFailed | UserCodeError) for each in _causes(error)):
                _trace(error, given)
            if error.args:  # a rank has said it otherwise
                _say(f"{where}{error}")
            return error.exit_code
        case KeyboardInterrupt() | click.exceptions.Abort():
            _say("interrupted")
            return error.exit_code if isinstance(error, Interrupted) else 130
        case click.ClickException():
            context = getattr(error, "ctx", None)
            hint = f" (see {context.command_path} --help)" if context else ""
            _say(f"{_said(error, given)}{hint}")
            return 2
        case BrokenPipeError():
            _drop_stdout()
            return 0
        case OSError(errno=int()):
            _drop_stdout()
            of = f"{error.filename}: " if error.filename else ""
            _say(f"{where}{of}{error.strerror or error}")
            return 2
        case MemoryError():
            _say(f"{where}out of memory")
            return 4
    return _bug(error, given, where)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and the ones it was raised from, each once: one may be its own cause."""
    found: list[BaseException] = []
    while error is not None and not any(error is each for each in found):
        found.append(error)
        error = error.__cause__
    yield from found


def _said(error: click.ClickException, given: list[str]) -> str:
    """Message of click, with our suggestion for an unknown flag."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error.format_message().rstrip(".")
    wrong = error.option_name
    if not wrong.startswith("--"):  # click took -lr for -l -r
        wrong = next((each.partition("=")[0] for each in given if each.startswith(wrong)), wrong)
    flags = [
        f for p in error.ctx.command.params for f in (*p.opts, *p.secondary_opts) if f[:1] == "-"
    ]
    return f"no such option: {wrong}{suggest(wrong, flags)}"


def _trace(error: BaseException | None, given: list[str]) -> None:
    """Show the traceback of an error if --verbose is given."""
    verbose = any(a == "--verbose" or (a.startswith("-v") and set(a[1:]) == {"v"}) for a in given)
    if verbose and error is not None:
        import traceback

        traceback.print_exception(error)


def _bug(error: BaseException, given: list[str], where: str) -> int:
    _trace(error, given)
    detail = " ".join(str(error).split())[:200]
    _say(
        f"{where}a bug in gradtool: {type(error).__name__}: {detail}; please report it with the "
        "command and the model (gradtool -v shows more)"
    )
    return 70


def _say(message: str) -> None:
    """One line on stderr; names from files cannot reach the terminal as control sequences."""
    from gradtool.commands.output import write_line

    with suppress(OSError):  # of a terminal that is closed
        write_line(f"gradtool: {' '.join(message.split())}", sys.stderr)


def _drop_stdout() -> None:
    """Drop the rest of the buffer: do not fail once more on the way out."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
