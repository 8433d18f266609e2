"""Cases of the vision family."""

from __future__ import annotations

import numpy as np
from cases import case, fixed, floats, integers

for corners in (0, 1):
    case("AffineGrid", (2, 2, 3), integers(2, 3, 4, 5), align_corners=corners)
    case("AffineGrid", (1, 3, 4), integers(1, 2, 3, 4, 5), align_corners=corners)

for mode in ("nearest", "linear", "cubic"):
    for padding in ("zeros", "border", "reflection"):
        for corners in (0, 1):
            grid = np.random.default_rng(3).uniform(-1.4, 1.4, (2, 3, 5, 2))
            grid = np.round(grid * 40) / 40 + 0.0113  # away from where weights have corners
            case(
                "GridSample", (2, 3, 4, 6), grid, mode=mode, padding_mode=padding,
                align_corners=corners, gradient=False, note="fixed",
            )  # fmt: skip
