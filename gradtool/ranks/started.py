"""Whether this process is one of several ranks, told without loading any of them."""

from __future__ import annotations

import os
import signal

STARTED = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")  # set for a rank by its launcher
# Ctrl-C, the signals of a system shutting down, and of a terminal being closed.
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")


def is_rank() -> bool:
    """Whether an MPI has started this process."""
    return any(name in os.environ for name in STARTED)


def missing(what: str) -> str:
    """A message: an option takes MPI, which is not there."""
    from gradtool.text.extras import install

    return (
        f"{what} takes MPI: {install('mpi')} brings mpi4py and an MPI; where a system has one, "
        "pip install mpi4py"
    )


def heard() -> list[int]:
    """The signals not ignored, as `nohup` makes one."""
    known = (getattr(signal, name) for name in _NAMES if hasattr(signal, name))
    return [number for number in known if signal.getsignal(number) != signal.SIG_IGN]
