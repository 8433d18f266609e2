"""The peak of a plan as a polynomial in the sizes that a model leaves open."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gradtool.planning.remap_schedule import translated
from gradtool.planning.schedule import Schedule
from gradtool.workloads.workload import Workload

DEGREE = 2  # in each symbol: attention is quadratic in the sequence
MOST_SYMBOLS = 2  # that a formula has: each further one takes three times the programs
MOST_OPEN = 8  # open sizes of a graph, beyond which two of them say little
SIZES = (16, 32, 48)  # of each symbol: one more than the degree
LARGE = 64  # the formula is that of the step which has the peak where every symbol is this
ODD = 99  # a formula also has to hold where every symbol is this


@dataclass(frozen=True)
class Term:
    """`bytes · Π symbol^power`."""

    bytes: int
    powers: Mapping[str, int]


@dataclass(frozen=True)
class Formula:
    """A sum of terms, largest powers first: bytes alive at `step`, padding left out.

    `fixed` are the sizes of the symbols that are no variables of it.  `workspace` is None if the
    terms count the workspace of the step; else that is no such sum, and has this many bytes where
    every symbol is `LARGE`.
    """

    terms: tuple[Term, ...]
    step: str
    fixed: Mapping[str, int]
    workspace: int | None = None

    def at(self, sizes: Mapping[str, int]) -> int:
        """The bytes where the symbols have these sizes."""
        total = 0
        for term in self.terms:
            factor = 1
            for symbol, power in term.powers.items():
                factor *= sizes[symbol] ** power
            total += term.bytes * factor
        return total


@dataclass(frozen=True)
class _Profile:
    """The names of the steps in order, and the bytes alive at each, with and without workspaces."""

    names: list[str]
    total: list[int]
    held: list[int]


def peak_formula(work: Workload, schedule: Schedule, symbols: Sequence[str]) -> Formula | None:
    """The peak of a schedule in terms of `symbols`; None where it is no such polynomial.

    It is the peak where the symbols are large.  Bytes are interpolated between sizes, and the
    result is compared with the simulator at other sizes: a polynomial of degree 2 in each symbol
    is found exactly.  Workspaces that are cut to a size that suits a machine grow in leaps: then
    the formula is that of the rest.
    """
    chosen = tuple(symbols[:MOST_SYMBOLS])
    grid = list(itertools.product(SIZES, repeat=len(chosen)))
    points = [*grid, *((size,) * len(chosen) for size in (LARGE, ODD))]
    found = [_profile(work, schedule, dict(zip(chosen, p, strict=True))) for p in points]
    if not found[0].names or any(each.names != found[0].names for each in found):
        return None
    large = found[len(grid)]
    step = large.total.index(max(large.total))
    name, fixed = large.names[step], {s: work.dims[s] for s in symbols[MOST_SYMBOLS:]}
    terms = _terms(chosen, points, [each.total[step] for each in found])
    if terms is not None:
        return Formula(terms, name, fixed)
    terms = _terms(chosen, points, [each.held[step] for each in found])
    if terms is None:
        return None
    return Formula(terms, name, fixed, large.total[step] - large.held[step])


def _profile(work: Workload, schedule: Schedule, sizes: Mapping[str, int]) -> _Profile:
    """The live values at each step for other sizes."""
    simulator = work.unaligned(sizes)
    steps = simulator.program.steps
    order = translated(work.program, simulator.program, schedule.order)
    total = simulator.profile(order)
    held = [size - simulator.work[s] for size, s in zip(total, order, strict=True)]
    return _Profile([steps[s].name for s in order], total, held)


def _terms(
    symbols: Sequence[str], points: Sequence[tuple[int, ...]], sizes: Sequence[int]
) -> tuple[Term, ...] | None:
    """The polynomial with these values at these points, of which there are more than it takes."""
    exponents = list(itertools.product(range(DEGREE + 1), repeat=len(symbols)))
    count = len(exponents)
    coefficients = _solve(points[:count], exponents, sizes[:count])
    if coefficients is None:
        return None
    ordered = sorted(
        zip(exponents, coefficients, strict=True),
        key=lambda pair: (-sum(pair[0]), tuple(-p for p in pair[0])),
    )
    terms = tuple(
        Term(c, {s: p for s, p in zip(symbols, powers, strict=True) if p})
        for powers, c in ordered
        if c
    )
    formula = Formula(terms, "", {})
    for point, size in zip(points[count:], sizes[count:], strict=True):
        if formula.at(dict(zip(symbols, point, strict=True))) != size:
            return None
    return terms


def _solve(
    grid: Sequence[tuple[int, ...]], exponents: Sequence[tuple[int, ...]], sizes: Sequence[int]
) -> list[int] | None:
    """Integer coefficients of a polynomial with these values; None if there are none."""
    matrix = [[Fraction(_monomial(point, powers)) for powers in exponents] for point in grid]
    found = _eliminate(matrix, [Fraction(size) for size in sizes])
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
