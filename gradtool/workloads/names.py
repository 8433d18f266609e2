"""The names that people choose by: ways to plan, optimizers.

Nothing heavy is imported here, so that a command can list them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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


def current(name: str) -> str:
    """The name of a plan, of which an earlier one may be given."""
    return FORMER.get(name, name)
