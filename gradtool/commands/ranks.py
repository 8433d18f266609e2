"""Options of commands on several ranks, and their beginning and end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from gradtool.commands.options import switch, together
from gradtool.errors import Interrupted, UsageError
from gradtool.ranks.started import is_rank

if TYPE_CHECKING:
    from gradtool.ranks.group import Group
    from gradtool.ranks.launch import Marks

TIMEOUT = 600.0  # seconds
FIRST = 1.0  # seconds that rank 0 has to say what went wrong, before another says it


options = together(
    click.option("--ranks", type=click.IntRange(min=1), metavar="N",
                 help="Train on N processes of this machine, by MPI: each takes its share of "
                      "every batch.  mpirun -n N gradtool train does it on several."),
    switch("--deterministic", "Sum gradients in the order of ranks: the same bits with every MPI."),
    click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
                 help="End all ranks where one does not answer for so long.  "
                      f"[default: {TIMEOUT:g}]"),
)  # fmt: skip


def starts_ranks(ranks: int | None) -> bool:
    """Whether this process only starts the ranks."""
    return ranks is not None and ranks > 1 and not is_rank()


def start(arguments: list[str], ranks: int) -> None:
    """Run a command line on ranks; see `gradtool.ranks.launch.run`."""
    from gradtool.ranks import launch

    stream = sys.stdout

    def out(piece: bytes) -> None:
        stream.buffer.write(piece)
        stream.flush()

    launch.run(arguments, ranks, out)


@contextmanager
def joined(given: dict[str, Any]) -> Iterator[Group]:
    """The group of this rank; a process that nobody started as one is alone.

    An error on a rank ends all of them, and is said once.  From an end that all come to
    alike they leave together: the first one may still write a checkpoint.
    """
    from gradtool.ranks.group import ALONE

    if not is_rank():
        yield ALONE
        return
    from gradtool.ranks.launch import marks
    from gradtool.ranks.mpi import Ranks

    marked, left = marks(), None
    group = Ranks(timeout=given["timeout"] or TIMEOUT, ordered=given["deterministic"])
    try:
        _require(given["ranks"], group.size)
        if marked is not None:
            marked.tell_all("begun", group.rank, os.getpid())
            group.told = lambda step: marked.tell_all("step", group.rank, step)
        try:
            yield group
        except Interrupted as error:
            if not error.together:
                raise
            left = _explained(error, group.rank, marked)
        group.close()
    except BaseException as error:  # the other ranks wait for this one
        if group.size == 1:
            raise
        from gradtool.commands.line import explain

        if group.rank:
            time.sleep(FIRST)
        code = explain(error, sys.argv[1:], f"rank {group.rank}: " if group.rank else "")
        if marked is not None:
            marked.end_all(code)
        group.abort(code)
    if left is not None:
        sys.exit(left)


def _explained(error: Interrupted, rank: int, marked: Marks | None) -> int:
    """Say once why all ranks end; the exit code of this one.

    An MPI kills the others of a rank that fails, and loses what they said: where somebody reads
    marks, the code is told by these.
    """
    if rank == 0:
        from gradtool.commands.line import explain

        code = explain(error, sys.argv[1:])
        if marked is not None:
            marked.end_all(code)
    return 0 if marked is not None else error.exit_code


def _require(asked: int | None, found: int) -> None:
    if asked not in (None, found):
        raise UsageError(f"--ranks {asked}, and {found} were started")
