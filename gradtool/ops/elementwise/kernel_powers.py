"""Powers, without a call of `pow` for the usual exponents."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtool.ops.shared.types import Array

POWERS = {
    -1.0: lambda xp, x, y: xp.divide(x.dtype.type(1), x, out=y),
    0.5: lambda xp, x, y: xp.add(xp.sqrt(x, out=y), 0, out=y),  # (-0.0)^½ is 0.0, √-0.0 is not
    1.0: lambda xp, x, y: xp.copyto(y, x),
    2.0: lambda xp, x, y: xp.multiply(x, x, out=y),
}


def raise_to(xp: Any, x: Array, exponent: Array, y: Array) -> None:
    """`y = x ** exponent`, with one multiplication or root for the usual scalar exponents."""
    scalar = exponent.size == 1 and x.size > 1 and isinstance(exponent, np.ndarray)
    usual = POWERS.get(float(exponent.flat[0])) if scalar and x.dtype.kind not in "iub" else None
    if usual is not None:
        usual(xp, x, y)
    else:
        xp.power(x, exponent, out=y, casting="unsafe")
