"""The mutants of a module: what stands in one place of one of its functions, replaced.

A comparison, an operator or a constant becomes another one, a condition its opposite, a `return`
that of None, and a call for its effect is left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, NamedTuple

SKIPPED = {"annotation", "returns", "decorator_list", "ctx"}
UNTOUCHED = ast.arguments | ast.Raise | ast.JoinedStr  # defaults, and what messages say
_PAIRS = (("Lt", "LtE"), ("Gt", "GtE"), ("Eq", "NotEq"), ("Is", "IsNot"), ("In", "NotIn"),
          ("Add", "Sub"), ("Mult", "FloorDiv"), ("LShift", "RShift"), ("BitAnd", "BitOr"),
          ("And", "Or"), ("Break", "Continue"))  # fmt: skip
SWAPS = dict([*_PAIRS, *((b, a) for a, b in _PAIRS), ("Div", "Mult"), ("Mod", "Mult")])


class Mutant(NamedTuple):
    """One change: `new` in a slot of a node, or of a list of nodes."""

    line: int
    told: str
    holder: Any
    slot: Any
    new: ast.AST

    def apply(self) -> None:
        """Change the tree that the mutant was made of."""
        put = setattr if isinstance(self.holder, ast.AST) else list.__setitem__
        put(self.holder, self.slot, self.new)


def mutants(node: ast.AST, name: str = "", line: int = 0) -> Iterator[Mutant]:
    """All mutants of the functions below a node, which is in the function of that name."""
    for field, value in ast.iter_fields(node):
        slots = list(enumerate(value)) if isinstance(value, list) else [(field, value)]
        for slot, child in slots if field not in SKIPPED else ():
            if not isinstance(child, ast.AST) or isinstance(child, UNTOUCHED):
                continue
            if isinstance(child, ast.keyword) and child.arg == "strict":
                continue  # `zip` checks what is so
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                yield from mutants(child, f"{name}.{child.name}".lstrip("."), child.lineno)
            elif not isinstance(node, ast.Module | ast.ClassDef):
                line = child.lineno if isinstance(child, ast.stmt) else line
                for new in _variants(node, field, child):
                    told = f"{name}: {_told(node, child)} → {_told(node, new)}"
                    yield Mutant(line, told, value if slot != field else node, slot, new)
                yield from mutants(child, name, line)


def _variants(node: ast.AST, field: str, child: Any) -> Iterator[ast.AST]:
    """What may stand in the place of a child."""
    if (other := SWAPS.get(type(child).__name__)) is not None:
        yield getattr(ast, other)()
    elif isinstance(child, ast.Constant) and not isinstance(node, ast.Expr):
        yield from [ast.Constant(not child.value)] if isinstance(child.value, bool) else []
        yield from [ast.Constant(child.value + 1)] if type(child.value) in {int, float} else []
        yield from [ast.Constant(f"{child.value}x")] if isinstance(child.value, str) else []
    elif isinstance(child, ast.UnaryOp) and isinstance(child.op, ast.Not | ast.USub):
        yield child.operand
    elif isinstance(child, ast.Return) and not isinstance(child.value, ast.Constant | None):
        yield ast.Return(ast.Constant(None))
    elif isinstance(child, ast.Expr) and isinstance(child.value, ast.Call):
        yield ast.If(ast.Constant(value=False), [child], [])
    if field in {"test", "ifs"} and not isinstance(child, ast.UnaryOp):
        yield ast.UnaryOp(ast.Not(), child)


def _told(node: ast.AST, child: Any) -> str:
    if isinstance(child, ast.operator | ast.cmpop | ast.boolop):
        return f"{type(child).__name__} in {ast.unparse(node)}"
    return "pass" if isinstance(child, ast.If) else ast.unparse(child)
