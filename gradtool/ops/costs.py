"""Cost of one step of a program: its floating-point operations, and the bytes it moves.

Counts are exact integers that follow from shapes and attributes alone, the same on every machine;
others are None, never guessed, for the reason of `Traits.uncounted`.  The conventions:

* An addition, subtraction, multiplication, division, comparison, minimum, maximum, rounding or
  change of sign counts 1, so a multiply-add counts 2; so do a power, a root, an elementary function
  (exponential, logarithm, trigonometric, hyperbolic, error function) and a random draw.  Numbers of
  any type count alike.
* Selecting, copying, converting, indexing, logic and bits count 0: they move what exists.
* A sum of n numbers counts n, as in the 2·M·N·K of a matrix product, and so does an extreme.
* Both sides of a selection are counted, and so are padding and the scores that a mask hides.
* The formula counted is the one that the docstring of the kernel, or of the composite, states; a
  stable softmax has its maximum subtracted.  Splitting into blocks does not count, nor do the
  polynomials or tricks behind one function.
* What the host computes of sizes and positions (counts of windows, taps of an interpolation) does
  not count, nor do factors that are 1 and terms whose coefficient is 0.
* A Fourier transform of n complex numbers counts 5 n log₂ n, sorting n numbers n log₂ n; the
  logarithm is rounded up.

Source: the rule of one per computed element is that of XLA's HloCostAnalysis; unlike there,
elementary functions are not kept in a separate count, and moving data is free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from gradtool.graph.composites import DOMAIN
from gradtool.graph.declarations import ask
from gradtool.graph.families import split_name
from gradtool.graph.registry import Registry
from gradtool.graph.specs import Spec
from gradtool.ops import traits
from gradtool.ops.shared.element_counts import made, size

if TYPE_CHECKING:
    from gradtool.ops.control.programs import Body

__all__ = ["Cost", "cost", "counts", "each", "find", "flops", "free", "moved", "total"]

Formula = TypeVar("Formula", bound=Callable[..., int | None])


def moved(
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    *,
    op: str = "",
    attributes: Mapping[str, Any] = MappingProxyType({}),
) -> int:
    """Bytes read and written by one call of the operator of the full name `op`.

    An operand that is given twice is read twice; known numbers on the host are not read.  The
    bodies of control flow count as often as they run; where that is not known, what they move is
    left out.
    """
    written: int = sum(spec.bytes for spec in outputs if spec is not None)
    read = sum(
        _read(op, slot, spec, written) for slot, spec in enumerate(inputs) if isinstance(spec, Spec)
    )
    if op not in ("If", "Loop", "Scan"):
        return read + written
    from gradtool.ops.control.cost import over_bodies

    return read + written + (over_bodies(op, inputs, attributes, _of_steps) or 0)


def _read(op: str, slot: int, spec: Spec, written: int) -> int:
    known = traits.of(op)
    if known.unread == slot:
        return 0
    return min(spec.bytes, written) if slot == 0 and known.partial else spec.bytes


def _of_steps(program: Body) -> int:
    return sum(step.moved for step in program.steps)


@dataclass(frozen=True)
class Cost:
    """The count of one operator: `formula(*inputs, out, **attributes)`, which names what it reads.

    Inputs are specs, arrays where they are known host numbers, or None where absent; `out` has one
    spec per output, None where it is not wanted.
    """

    domain: str
    op: str
    since: int
    formula: Callable[..., int | None]


COSTS = Registry[Cost]("costs", "cost", function="formula")


def cost(*names: str, since: int = 1) -> Callable[[Formula], Formula]:
    """Register the decorated formula for these operators from opset `since` on."""

    def register(formula: Formula) -> Formula:
        for name in names:
            COSTS.add(Cost(*split_name(name), since, formula))
        return formula

    return register


def counts(table: Mapping[str, Callable[..., int | None]]) -> None:
    """Register the formulas of operators from their first opset version on."""
    for name, formula in table.items():
        cost(name)(formula)


def each(table: Mapping[str, int | tuple[int, int]]) -> None:
    """Register operators that count so many operations for each element of their result.

    Of two numbers the first is for each element of their first operand.
    """
    for name, operations in table.items():
        read, written = operations if isinstance(operations, tuple) else (0, operations)
        cost(name)(partial(_linear, read, written))


def _linear(read: int, written: int, *operands: Any, out: Sequence[Any]) -> int:
    return read * size(*operands[:1]) + written * made(out)


def free(names: Iterable[str]) -> None:
    """Register operators that only move data."""
    cost(*names)(lambda: 0)


def find(domain: str, op: str, version: int) -> Cost | None:
    """The cost of an operator at an opset version, or None. The newest old enough wins.

    That of a composite without a formula is counted off its body.
    """
    found = COSTS.find(domain, op, version)
    if found is None and domain == DOMAIN:
        from gradtool.ops.composites.counting import counted

        return counted(op)
    return found


def flops(
    domain: str,
    op: str,
    version: int,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    attributes: Mapping[str, Any],
) -> int | None:
    """The floating-point operations of one call, or None where they are not known.

    `inputs` are specs, or numpy arrays for host numbers that are constant; `outputs` are specs.
    An option that the table of a formula lacks makes the count unknown.
    """
    found = find(domain, op, version)
    if found is None:
        return None
    try:
        counted: int | None = ask(found.formula, inputs, outputs, attributes)
    except KeyError:
        return None
    return None if counted is None else max(counted, 0)  # attributes may be negative


def total(program: Body) -> int | None:
    """Operations of all steps of a program, or None if the count of a step is unknown."""
    counts = [step.flops for step in program.steps]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
