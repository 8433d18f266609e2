"""Declarations of operators: functions of operands, results and attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import Parameter, signature
from typing import Any


def ask(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    out: Sequence[Any] | None,
    given: Mapping[str, Any],
) -> Any:
    """The value of `function(*inputs, out, **given)`, which names just what it reads.

    It gets as many operands as it has places for, and of `out` and the attributes `given` what it
    names, unless it takes any.  Before there are results, `out` is None.
    """
    places, names = _parameters(function)
    keywords = dict(given) if out is None else {"out": tuple(out), **given}
    if names is not None:
        free = () if places is None else places[len(inputs) :]
        keywords = {k: v for k, v in keywords.items() if k in names or k in free}
    return function(*(inputs if places is None else inputs[: len(places)]), **keywords)


@cache
def _parameters(
    function: Callable[..., Any],
) -> tuple[tuple[str, ...] | None, frozenset[str] | None]:
    """The names of the operands that a function takes, and its keywords; None for any."""
    kinds: dict[Any, list[str]] = {}
    for parameter in signature(function).parameters.values():
        kinds.setdefault(parameter.kind, []).append(parameter.name)
    places = tuple(kinds.get(Parameter.POSITIONAL_OR_KEYWORD, ()))
    names = frozenset(kinds.get(Parameter.KEYWORD_ONLY, ()))
    return (
        None if Parameter.VAR_POSITIONAL in kinds else places,
        None if Parameter.VAR_KEYWORD in kinds else names,
    )
