"""How little memory a plan of some work can take, proven by what every plan must compute."""

from __future__ import annotations

from gradtool.workloads.budgets.answers import Answers
from gradtool.workloads.budgets.forms import Forms

_ROUNDS = 4
_FINE = 256  # parts of what keeping everything takes that are told apart


def raise_floor(answers: Answers | Forms, allowed: int | None, reached: int, effort: float) -> None:
    """Halve the range between what no plan of so much work fits into and what one does.

    Each budget on the way is asked what work it takes at least (bound c).
    """
    low, high = answers.known.least_of(allowed), reached
    for _ in range(_ROUNDS):
        if high - low <= answers.kept.peak // _FINE:
            break
        middle = (low + high) // 2
        answers.prove(middle, effort, allowed)
        least = answers.known.least_of(allowed)
        low, high = (least, high) if least > middle else (low, middle)
