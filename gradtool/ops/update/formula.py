"""Updates whose formula broadcasts: the others are in `gradtool.operators.updates`."""

from __future__ import annotations

from typing import Any

from gradtool.ops.formulas import elementwise


@elementwise("ai.gradtool::FactoredDirection", over=(0,), apart=("native",))
def factored_direction(op: Any, g: Any, rows: Any, columns: Any, *, epsilon: float) -> Any:
    """The direction `g / √max(rows · columns, ε²)` of Adafactor for matrices.

    `g` is `[…, n, m]`, `rows` `[…, n, 1]`, `columns` `[…, 1, m]`.
    """
    return g / op.Sqrt(op.Max(rows * columns, epsilon * epsilon))
