"""The kernels that a command runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradtool.commands.output import Reporter
    from gradtool.kernels.native import Kernels


def available(reporter: Reporter, asked: str, *, exact: bool = False) -> Kernels:
    """Numpy's or native ones, as asked for; numpy's, with a line, where there is no library."""
    if asked == "numpy":
        return "numpy"
    from gradtool.native import library

    found, remark = library.status()
    if found is None:
        reporter.say(f"kernels: numpy ({remark})")
        return "numpy"
    return "exact" if exact else "native"
