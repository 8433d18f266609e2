"""The command line: parse, call one function, print.  Commands live in `gradtool/commands`.

Nothing is imported here that a page of help does not need.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

COMPLETES = "_GRADTOOL_COMPLETE"  # a shell asks by this variable what may come next
NARROWEST = 80  # columns that the page of help is laid out for: wider terminals show the same


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with the exit code that belongs to the outcome."""
    if _asks_for_help(sys.argv[1:] if arguments is None else arguments):
        _leave(_help())
    import gc

    from gradtool import child

    child.leave_out_current_folder()
    from gradtool.commands import threads

    threads.fix()
    gc.disable()  # for good: nor is garbage looked for on the way out
    _leave(run(arguments))


def _asks_for_help(given: list[str]) -> bool:
    """Whether the page of help is all that is asked for, by nothing but its flag."""
    return given in (["-h"], ["--help"]) and _columns() >= NARROWEST and COMPLETES not in os.environ


def _columns() -> int:
    """The columns of the terminal, as `shutil` finds them, which takes long to import."""
    try:
        told = int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        told = 0
    try:
        return told or os.get_terminal_size(sys.__stdout__.fileno()).columns  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        return NARROWEST


def _help() -> int:
    """Print what `group` does, without the libraries that lay it out; a test compares the two."""
    try:
        with open(f"{os.path.dirname(__file__)}/help.txt", encoding="ascii") as page:  # noqa: PTH120, PTH123
            sys.stdout.write(page.read())
        sys.stdout.flush()
    except (OSError, AttributeError):
        return run(["--color", "auto", "--help"])
    return 0


def _leave(code: int) -> NoReturn:
    """End the process as `sys.exit` does, but leave its memory to the system.

    To take a large graph apart, node by node, takes as long as a tenth of building it.

    A rank of an MPI ends in full: MPICH tells its `mpiexec` that it is done when C's handlers run,
    and is taken for dead without, which kills the ranks that are not done yet.

    Source: mypy ends like this (`mypy.util.hard_exit`); unlike it, what is registered to run at
    exit runs.
    """
    if "mpi4py.MPI" in sys.modules:
        sys.exit(code)
    import atexit

    try:  # noqa: SIM105 - contextlib takes long to import
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()  # noqa: SLF001 - waits for threads
    atexit._run_exitfuncs()  # noqa: SLF001 - there is no public name
    os._exit(code)


def run(arguments: list[str] | None = None) -> int:
    """The exit code of one command; see `gradtool.errors` for the table."""
    from gradtool.commands.line import run as run_line

    return run_line(sys.argv[1:] if arguments is None else arguments)
