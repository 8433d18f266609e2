"""Updates of parameters: the operations of their formulas, for each element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtool.operators.updates import UPDATES, Update
from gradtool.ops.costs import cost
from gradtool.ops.shared.element_counts import size
from gradtool.ops.update.kernel import tape_of


def _register(name: str, update: Update) -> None:
    @cost(f"ai.gradtool::{name}")
    def formula(*inputs: Any, out: Sequence[Any], **options: Any) -> int:
        wanted = [o for o in out if o is not None]
        tape = tape_of(update, inputs, out, options)
        return len(tape.elements) * size(*wanted[:1]) + len(tape.numbers)


for _name, _update in UPDATES.items():
    _register(_name, _update)
