"""The names that people choose by: ways to plan, kernels.

Nothing heavy is imported here, so that a command can list them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradtool.ops.native import Kernels

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
}
FLAGS: Mapping[Kernels, str] = {
    "numpy": "--kernels numpy",
    "native": "--kernels native",
    "exact": "--kernels native --exact-conv",
    "cupy": "--kernels cupy",
}


def current(name: str) -> str:
    """The name of a plan, of which an earlier one may be given."""
    return FORMER.get(name, name)


def kernels_of(options: Mapping[str, Any]) -> Kernels:
    """The kernels that flags or keys ask for."""
    kernels: Kernels = options["kernels"]
    return "exact" if kernels == "native" and options["exact_conv"] else kernels
