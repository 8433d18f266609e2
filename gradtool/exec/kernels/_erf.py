"""The error function."""

from __future__ import annotations

import numpy as np
from scipy import special

# erf x = tanh(x · P(x²)) for |x| ≤ 4, fitted to a relative error of 1e-7.
P = (
    1.1283792744048773,
    0.10276905322195341,
    -0.00019182146713891065,
    -0.0006197954853117263,
    8.764235236752617e-05,
    -5.669437672989785e-06,
    1.419145542771105e-07,
)


def erf_into(xp, x, out, t, s):
    """`out = erf(x)`; `out` may be x. The polynomial serves float32 on the host."""
    if xp is not np:
        from cupyx.scipy.special import erf

        erf(x, out=out)
    elif x.dtype.itemsize > 4:
        special.erf(x, out=out)
    else:
        np.minimum(np.maximum(x, -4, out=t), 4, out=t)
        np.multiply(t, t, out=s)
        np.multiply(s, P[-1], out=out)
        for coefficient in P[-2:0:-1]:
            np.add(out, coefficient, out=out)
            np.multiply(out, s, out=out)
        np.add(out, P[0], out=out)
        np.tanh(np.multiply(out, t, out=out), out=out)
