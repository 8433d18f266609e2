"""The names that people choose by: ways to plan, kernels.

Nothing heavy is imported here, so that a command can list them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gradtool.operators.kernel_sets import AUTO, Asked, Kernels

KEEP = "keep"
REORDER = "reorder"
LIGHT = "optimal 5 %"  # of the report
SEARCHED = ("min-cut", "optimal")
RECIPES = (REORDER, "mirror", "sqrt", "segments")
STRATEGIES = (*RECIPES, *SEARCHED)
PLANS = (KEEP, *STRATEGIES)

POINTS = 20  # budgets of a frontier

# What names were before: read wherever a name is.
FORMER: Mapping[str, str] = MappingProxyType({"none": REORDER})

KERNELS: Mapping[Kernels, str] = {
    "numpy": "numpy's kernels",
    "native": "native kernels",
    "exact": "native kernels with exact convolutions",
    "cupy": "CuPy's kernels",
    "none": "other runtimes",
}
FLAGS: Mapping[Kernels, str] = {
    "numpy": "--kernels numpy",
    "native": "--kernels native",
    "exact": "--kernels native --exact-conv",
    "cupy": "--kernels cupy",
    "none": "--kernels none",
}


def current(name: str) -> str:
    """The name of a plan, of which an earlier one may be given."""
    return FORMER.get(name, name)


def kernels_of(options: Mapping[str, Any], device: str = "cpu") -> Kernels:
    """The kernels of flags or keys on a device."""
    kernels: Asked = options["kernels"]
    return "exact" if kernels == "native" and options["exact_conv"] else chosen(kernels, device)


def options_for(kernels: Kernels) -> dict[str, Any]:
    """The flags or keys of kernels, of which `kernels_of` makes them."""
    is_exact = kernels == "exact"
    return {"kernels": "native" if is_exact else kernels, "exact_conv": is_exact}


def chosen(kernels: Asked, device: str = "cpu") -> Kernels:
    """The kernels of `auto`: of a CUDA device CuPy's, of the CPU the library's or else numpy's.

    Winograd's convolutions need `native`: their rounding opens a Relu that is shut in float64 more
    often than another one, and the steps of a training differ from there on.
    """
    if kernels != AUTO:
        return kernels
    if device != "cpu":
        return "cupy"
    from gradtool.native import library

    return "exact" if library.is_available() else "numpy"
