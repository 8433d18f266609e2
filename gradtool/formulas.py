"""The peak of a plan as a polynomial in the sizes that a model leaves open."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from gradtool.planning.schedule import Schedule
from gradtool.planning.simulate import Simulator
from gradtool.plans import Workload, workload

DEGREE = 2  # in each symbol: attention is quadratic in the sequence
MOST_SYMBOLS = 2  # that a formula has: each further one takes three times the programs
SIZES = (16, 32, 48)  # of each symbol: one more than the degree
LARGE = 64  # the formula is that of the step which has the peak where every symbol is this


@dataclass(frozen=True)
class Term:
    """`bytes · Π symbol^power`."""

    bytes: int
    powers: Mapping[str, int]


@dataclass(frozen=True)
class Formula:
    """A sum of terms, largest powers first: bytes alive at `step`, padding left out.

    `fixed` are the sizes of the symbols that are no variables of it.
    """

    terms: tuple[Term, ...]
    step: str
    fixed: Mapping[str, int]

    def at(self, sizes: Mapping[str, int]) -> int:
        """The bytes where the symbols have these sizes."""
        total = 0
        for term in self.terms:
            factor = 1
            for symbol, power in term.powers.items():
                factor *= sizes[symbol] ** power
            total += term.bytes * factor
        return total


def peak_formula(work: Workload, schedule: Schedule, symbols: Sequence[str]) -> Formula | None:
    """The peak of a schedule in terms of `symbols`; None where it is no such polynomial.

    It is the peak where the symbols are large.  Bytes are interpolated between sizes, and the
    result is compared with the simulator at another size: a polynomial of degree 2 in each symbol
    is found exactly.
    """
    chosen = tuple(symbols[:MOST_SYMBOLS])
    names = [work.program.steps[s].name for s in schedule.order]
    large = _profile(work, schedule, names, dict.fromkeys(chosen, LARGE))
    if not large:
        return None
    step = large.index(max(large))
    grid = list(itertools.product(SIZES, repeat=len(chosen)))
    rows = [_profile(work, schedule, names, dict(zip(chosen, g, strict=True))) for g in grid]
    exponents = list(itertools.product(range(DEGREE + 1), repeat=len(chosen)))
    coefficients = _solve(grid, exponents, [row[step] if row else None for row in rows])
    if coefficients is None:
        return None
    terms = [
        Term(c, {s: p for s, p in zip(chosen, powers, strict=True) if p})
        for powers, c in sorted(
            zip(exponents, coefficients, strict=True),
            key=lambda pair: (-sum(pair[0]), tuple(-p for p in pair[0])),
        )
        if c
    ]
    fixed = {name: work.dims[name] for name in symbols[MOST_SYMBOLS:]}
    found = Formula(tuple(terms), names[step], fixed)
    return found if found.at(dict.fromkeys(chosen, LARGE)) == large[step] else None


def _profile(
    work: Workload, schedule: Schedule, names: Sequence[str], sizes: Mapping[str, int]
) -> list[int] | None:
    """Bytes alive at each step for other sizes; None if the program is then another one."""
    other = workload(work.model, {**work.dims, **sizes}).program
    if [s.name for s in other.steps] != [s.name for s in work.program.steps]:
        return None
    return Simulator(replace(other, alignment=1)).profile(schedule.order)


def _solve(
    grid: Sequence[tuple[int, ...]],
    exponents: Sequence[tuple[int, ...]],
    sizes: Sequence[int | None],
) -> list[int] | None:
    """Integer coefficients of a polynomial with these values; None if there are none."""
    if any(size is None for size in sizes):
        return None
    matrix = [[Fraction(_monomial(point, powers)) for powers in exponents] for point in grid]
    found = _eliminate(matrix, [Fraction(size or 0) for size in sizes])
    if any(c.denominator != 1 for c in found):
        return None
    return [int(c) for c in found]


def _monomial(point: Sequence[int], powers: Sequence[int]) -> int:
    return math.prod(x**p for x, p in zip(point, powers, strict=True))


def _eliminate(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction]:
    """The solution of a regular system, by Gauss and Jordan in exact arithmetic."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for column in range(len(rows)):
        pivot = next(r for r in range(column, len(rows)) if rows[r][column])
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [x / rows[column][column] for x in rows[column]]
        for other in range(len(rows)):
            if other != column and rows[other][column]:
                factor = rows[other][column]
                rows[other] = [
                    x - factor * y for x, y in zip(rows[other], rows[column], strict=True)
                ]
    return [row[-1] for row in rows]
