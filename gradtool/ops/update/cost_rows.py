"""Updates of some rows of a table: the operations of their formulas, for each row with an index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtool.operators.updates import SPARSE, Update
from gradtool.ops.costs import cost, counts
from gradtool.ops.shared.element_counts import size
from gradtool.ops.update.kernel import tape_of

# The indices are sorted.
counts({"ai.gradtool::RowSlots": lambda i: size(i) * max(size(i) - 1, 0).bit_length()})


def _register(name: str, update: Update) -> None:
    @cost(f"ai.gradtool::{name}")
    def formula(*inputs: Any, out: Sequence[Any], **options: Any) -> int:
        x, _, _, sums, *rest = inputs
        tape = tape_of(update, (x, sums, *rest), out, options)
        return len(tape.elements) * size(sums) + len(tape.numbers)


for _name, _update in SPARSE.items():
    _register(_name, _update)
