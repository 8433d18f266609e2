"""Kernels in C for processors: float32, channels last inside, the same bits at any thread count.

`native/` beside the package has the sources and says how to add one.  Here lie the library's loader
(`library`), the words of a call (`call`), and one file per family: the words of its kernels, their
workspaces as formulas of shapes, and functions of numpy arrays.

The library may be absent, and its processor unknown: `library.status()` says so in one line.
"""

from __future__ import annotations

SLOTS = 8
"""Parts of a workspace: as many threads may work on one call, on every machine.  A formula of
`SLOTS` and shapes alone gives a plan that is the same everywhere."""

GRAIN = 1 << 21
"""Multiplications that are worth a thread of their own: about 40 µs of one."""


def slots(multiplications: int) -> int:
    """The parts of a kernel's workspace by its number of products: few for little work."""
    return max(1, min(SLOTS, -(-multiplications // GRAIN)))
