"""Declarations of operators: functions of operands, results and attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import Parameter, signature
from typing import Any


def ask(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    out: Sequence[Any],
    given: Mapping[str, Any],
) -> Any:
    """The value of `function(*inputs, out, **given)`, which may leave out what it does not read.

    It gets as many operands as it has places for, and of `out` and the attributes `given` what it
    names, unless it takes any.
    """
    count, names = _parameters(function)
    keywords = {"out": tuple(out), **given}
    if names is not None:
        keywords = {name: value for name, value in keywords.items() if name in names}
    return function(*inputs[:count], **keywords)


@cache
def _parameters(function: Callable[..., Any]) -> tuple[int | None, frozenset[str] | None]:
    """The number of operands that a function takes, and its keywords; None for any."""
    kinds: dict[Any, list[str]] = {}
    for parameter in signature(function).parameters.values():
        kinds.setdefault(parameter.kind, []).append(parameter.name)
    operands = len(kinds.get(Parameter.POSITIONAL_OR_KEYWORD, ()))
    count = None if Parameter.VAR_POSITIONAL in kinds else operands
    names = frozenset(kinds.get(Parameter.KEYWORD_ONLY, ()))
    return count, None if Parameter.VAR_KEYWORD in kinds else names
