"""Mutants of a small module: which there are, and that each compiles to what it says."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

from mutating import mutants

SOURCE = '''
LIMIT = 3

class Shop:
    """Not this."""

    @property
    def price(self, most: int = 9) -> int:
        """Nor this."""
        if not self.open:
            raise ValueError("nor this", 7)
        self.log("sold")
        return self.cost * 2 if most > 1 and self.cost else -1
'''


def told(source):
    return [m.told.removeprefix("Shop.price: ") for m in mutants(ast.parse(source))]


def test_every_place_of_a_function_is_mutated_in_turn_and_nothing_else():
    assert told(SOURCE) == [
        "not self.open → self.open",
        "self.log('sold') → pass",
        "'sold' → 'soldx'",
        "return self.cost * 2 if most > 1 and self.cost else -1 → return None",
        "most > 1 and self.cost → not (most > 1 and self.cost)",
        "And in most > 1 and self.cost → Or in most > 1 and self.cost",
        "Gt in most > 1 → GtE in most > 1",
        "1 → 2",
        "Mult in self.cost * 2 → FloorDiv in self.cost * 2",
        "2 → 3",
        "-1 → 1",
        "1 → 2",
    ]


def test_a_mutant_is_the_change_that_it_tells():
    source = "def f(x):\n    for i in x:\n        if i in x[1:]:\n            continue\n"
    changed = []
    for index in range(len(list(mutants(ast.parse(source))))):
        tree = ast.parse(source)
        list(mutants(tree))[index].apply()
        changed.append(ast.unparse(tree).splitlines()[2:])

    assert changed == [
        ["        if not i in x[1:]:", "            continue"],
        ["        if i not in x[1:]:", "            continue"],
        ["        if i in x[2:]:", "            continue"],
        ["        if i in x[1:]:", "            break"],
    ]
