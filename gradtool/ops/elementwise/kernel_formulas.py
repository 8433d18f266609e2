"""Kernels of the operators with a formula."""

from __future__ import annotations

from functools import cache
from typing import Any

from gradtool.graph.specs import Spec
from gradtool.ops.formulas import FORMULAS, Formula
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.blocks import block_work, by_blocks
from gradtool.ops.shared.sums import accumulator
from gradtool.ops.shared.tape import Tape, player, record
from gradtool.ops.shared.types import Array, Arrays, DType, Specs


@cache
def tape_of(formula: Formula, dtype: DType, **attributes: Any) -> Tape:
    """The recorded formula of operands of this type."""
    return record(
        formula.formula, (True,) * formula.inputs, frozenset(), (formula.over,), (True,),
        tuple(attributes.items()), double=accumulator(dtype).itemsize > 4,
    )  # fmt: skip


def _register(formula: Formula) -> None:
    def work(*inputs: Spec, out: Specs, **attributes: Any) -> list[Spec]:
        tape = tape_of(formula, out[0].dtype, **attributes)
        return block_work(inputs, out[0], tape.rooms, tape.masks)

    def run(xp: Any, *inputs: Array, out: Arrays, work: Arrays, **attributes: Any) -> None:
        """Evaluate the formula, a block of elements at a time."""
        tape = tape_of(formula, out[0].dtype, **attributes)
        by_blocks(xp, player(xp, tape), inputs, out[0], work)

    run.__doc__ = formula.formula.__doc__
    kernel(formula.name, may_inplace=formula.over, strided=True, work=work)(run)


for _formula in FORMULAS.entries():
    if "kernel" not in _formula.apart:
        _register(_formula)
