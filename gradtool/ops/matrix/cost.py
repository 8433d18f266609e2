"""Square matrices."""

from __future__ import annotations

from gradtool.ops.costs import cost, free
from gradtool.ops.shared.element_counts import Results, Shaped, made

free(("EyeLike",))


@cost("Det")
def det(x: Shaped, *, out: Results) -> int:
    """Gaussian elimination, then the product of the diagonal.

    Step k divides k numbers and changes k² by a multiply-add, for k = n - 1 … 1.
    """
    n = x.shape[-1]
    eliminated = n * (n - 1) // 2 + n * (n - 1) * (2 * n - 1) // 3
    return made(out) * (eliminated + n)
