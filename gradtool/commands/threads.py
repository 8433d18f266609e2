"""Number of threads of the command line's matrix products, and their way of waiting.

The number is fixed before numpy is loaded, so that bits depend on neither the load of the machine
nor, by default, on its cores.  OpenBLAS, the library of numpy's own packages, waits for its threads
by spinning, whatever it is told: where cores are busy, two of its threads take several times as
long as one (docs/running.md).  It gets one; libraries that can wait passively get the physical
cores.  The environment has the last word.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

SPINNING = ("OPENBLAS_NUM_THREADS",)
PASSIVE = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}
FIXED = {"OMP_DYNAMIC": "FALSE", "MKL_DYNAMIC": "FALSE"}
TOPOLOGY = Path("/sys/devices/system/cpu")


def fix() -> None:
    """Set the variables open in the environment; does nothing where numpy is loaded."""
    if "numpy" in sys.modules:
        return
    counts = dict.fromkeys(SPINNING, "1") | dict.fromkeys(PASSIVE, str(physical_cores()))
    if "OMP_NUM_THREADS" in os.environ:  # OpenBLAS reads it too, where nothing else is said
        counts.pop("OPENBLAS_NUM_THREADS")
    for name, value in (counts | WAITING | FIXED).items():
        os.environ.setdefault(name, value)


def physical_cores(topology: Path = TOPOLOGY) -> int:
    """Cores that this process may run on; two hardware threads of one core count once."""
    affinity = getattr(os, "sched_getaffinity", None)
    if affinity is None:
        return os.cpu_count() or 1
    processors = sorted(affinity(0))
    names = ("physical_package_id", "core_id")
    try:
        cores = {
            tuple((topology / f"cpu{p}" / "topology" / name).read_text() for name in names)
            for p in processors
        }
    except OSError:
        return len(processors)
    return len(cores)


def _chosen(ctx: click.Context, param: click.Parameter, value: int | None) -> int | None:
    if value is None or ctx.resilient_parsing:
        return value
    if "numpy" in sys.modules:
        raise click.BadParameter(
            "numpy is loaded, and with it its threads: set OPENBLAS_NUM_THREADS before", ctx, param
        )
    os.environ |= dict.fromkeys((*SPINNING, *PASSIVE), str(value))
    return value


option = click.option(
    "--threads", type=click.IntRange(min=1), metavar="N", is_eager=True, expose_value=False,
    callback=_chosen,
    help="Threads of matrix products; default: what the environment says, else 1 for OpenBLAS.",
)  # fmt: skip
