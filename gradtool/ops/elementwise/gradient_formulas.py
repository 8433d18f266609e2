"""Formulas as bodies of operators of our own, and slopes as gradient rules."""

from __future__ import annotations

from gradtool.graph.composites import DOMAIN, composite
from gradtool.ops.formulas import FORMULAS
from gradtool.ops.gradients import derivative
from gradtool.ops.shared.tiling import by_piece

for _formula in FORMULAS.entries():
    if _formula.of is not None:
        _of = _formula.op.removesuffix("Grad")
        derivative(_of, of=_formula.of, in_pieces=_formula.in_pieces, **_formula.defaults)(
            _formula.formula
        )
    elif _formula.domain == DOMAIN:
        _body = by_piece(_formula.formula) if _formula.in_pieces else _formula.formula
        composite(_formula.op, like=_formula.over[0])(_body)
