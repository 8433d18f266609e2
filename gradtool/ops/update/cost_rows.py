"""Updates of some rows of a table: the operations of their formulas, for each row with an index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtool.operators.updates import SPARSE, Update
from gradtool.ops.costs import cost
from gradtool.ops.shared.element_counts import Results, Shaped, size
from gradtool.ops.update.kernel import tape_of


@cost("ai.gradtool::RowSlots")
def row_slots(indices: Shaped, *, out: Results, **_: Any) -> int:
    """The indices are sorted."""
    del out
    return size(indices) * max(size(indices) - 1, 0).bit_length()


def _register(name: str, update: Update) -> None:
    @cost(f"ai.gradtool::{name}")
    def formula(*inputs: Any, out: Sequence[Any], **options: Any) -> int:
        x, _, _, sums, *rest = inputs
        tape = tape_of(update, (x, sums, *rest), out, options)
        return len(tape.elements) * size(sums) + len(tape.numbers)


for _name, _update in SPARSE.items():
    _register(_name, _update)
