"""Updates of some rows of a table: rows that are read once, several times, and not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
from cases import case, fixed, integers, positive

DOMAIN = "ai.gradtool::"
N = positive(low=0.05, high=0.5)  # a number
INDICES = (integers([3]), integers([4, 0, 4, 4, 1, 0]), integers([-1, 2, 4, -3]))

for _indices in INDICES:
    case(f"{DOMAIN}RowSlots", _indices, outputs=2, size=5, gradient=False)
case(f"{DOMAIN}RowSlots", np.array([2, -1, 2], np.int32), outputs=2, size=7, gradient=False)


def update(name: str, *inputs: Any, **options: Any) -> None:
    """A formula of tables `x` and state, and numbers."""
    for indices in INDICES:
        rows = indices % 5
        slots = np.unique(rows, return_inverse=True)[1].astype(np.int64)
        for width in ((3,), (2, 3)):
            x, *rest = (make(5, *width) if callable(make) else make for make in inputs)
            sums = fixed(len(rows), *width)
            case(DOMAIN + name, x, rows, slots, sums, *rest, gradient=False, **options)


ADAM = {"epsilon": 1e-6, "outputs": 3}
update("SparseSgdUpdate", fixed, N, None, None)
update("SparseSgdUpdate", fixed, N, N, N)
update("SparseAdagradUpdate", fixed, N, None, positive, epsilon=1e-6, outputs=2)
update("SparseAdamUpdate", fixed, N, N, N, N, None, None, fixed, positive, **ADAM)
update("SparseAdamUpdate", fixed, N, N, N, N, N, N, fixed, positive, **ADAM)
