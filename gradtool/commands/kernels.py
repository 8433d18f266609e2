"""The kernels that a command runs on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gradtool.operators.kernel_sets import LIBRARY

if TYPE_CHECKING:
    import onnx_ir as ir

    from gradtool.commands.output import Reporter
    from gradtool.operators.kernel_sets import Kernels


def available(reporter: Reporter, asked: Kernels) -> Kernels:
    """The kernels asked for; numpy's, with a line, where there is no library."""
    if asked not in LIBRARY:
        return asked
    from gradtool.native import library

    found, remark = library.status()
    if found is None:
        reporter.say(f"kernels: numpy ({remark})")
        return "numpy"
    return asked


def say_both(
    reporter: Reporter, model: ir.Model, dims: Mapping[str, int], asked: Kernels, found: Kernels
) -> None:
    """Say the peaks of a step on the kernels it is planned for, and on the ones found to run it."""
    from gradtool.exec.run import planned
    from gradtool.text.units import format_bytes
    from gradtool.workloads.names import KERNELS

    there, here = (planned(model, dims, kernels).peak for kernels in (asked, found))
    reporter.say(
        f"planned for {KERNELS[asked]}: {format_bytes(there)}; "
        f"planned anew for {KERNELS[found]}: {format_bytes(here)}"
    )
