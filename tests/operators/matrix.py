"""Cases of the matrix family."""

from __future__ import annotations

import numpy as np
from cases import case, fixed

for n in (1, 2, 3, 4):
    case("Det", (2, n, n))
case("Det", (3, 3))
case("Det", (2, 2, 3, 3))
case("EyeLike", fixed(3, 4), gradient=False)
case("EyeLike", fixed(3, 4), gradient=False, k=-1, dtype=7)
case("EyeLike", np.zeros((2, 2), np.int32), gradient=False, k=1)
