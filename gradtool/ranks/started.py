"""Whether this process is one of several ranks, told without loading any of them."""

from __future__ import annotations

import os

STARTED = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")  # set for a rank by its launcher


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
