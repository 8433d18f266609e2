"""Fields that the documents about plans share."""

from __future__ import annotations

from typing import Annotated

from gradtool.operators.kernel_sets import Kernels
from gradtool.text.json_schema import Count

Dims = Annotated[dict[str, Count], "Sizes by symbol."]
PlannedFor = Annotated[
    Kernels,
    "The kernels that are planned for; exact: native ones without Winograd's convolutions; none: "
    "other runtimes.",
]
