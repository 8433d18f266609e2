"""Arguments of public functions, held to their annotations: a wrong kind is one line.

Those of a record of options become keywords of a function by `takes`.
"""

from __future__ import annotations

import inspect
import numbers
import os
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, wraps
from typing import Annotated, Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, overload

from gradtool.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M")
N = TypeVar("N")
Record_co = TypeVar("Record_co", covariant=True)
Seed = Annotated[int, range(2**63)]
Rank = Annotated[int, range(1, 2**16)]
Many = Annotated[int, range(1, 2**31)]

_WORDS = {
    str: "a text", int: "a whole number", float: "a number", bool: "True or False",
    bytes: "bytes", type(None): "None", Callable: "a function",
}  # fmt: skip
_LONGEST = 60  # characters of a value in a message


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """A function whose arguments are held to its annotations before it runs.

    Numbers of numpy count as numbers, a text as no list of texts, True as no number.

    Raises:
        UsageError: an argument is of another kind, unknown or absent; in place of a TypeError.
    """
    name = function.__qualname__.removesuffix(".__init__")
    signature = inspect.signature(function)

    @wraps(function)
    def call(*given: P.args, **named: P.kwargs) -> R:
        try:
            bound = signature.bind(*given, **named)
        except TypeError as error:
            raise UsageError(f"{name}: {error}") from None
        hold(name, bound.arguments, function)
        return function(*given, **named)

    return call


class _Decorator(Protocol[P, Record_co]):
    """A decorator of functions of one argument or two before a record."""

    @overload
    def __call__(
        self, function: Callable[[M, Record_co], R], /
    ) -> Callable[Concatenate[M, P], R]: ...
    @overload
    def __call__(
        self, function: Callable[[M, N, Record_co], R], /
    ) -> Callable[Concatenate[M, N, P], R]: ...


def takes(
    record: Callable[P, Record_co], documented: Mapping[str, str]
) -> _Decorator[P, Record_co]:
    """A decorator that gives a function the parameters of a record in place of one record.

    The arguments before the record are the function's own, held to its annotations as by `checked`.

    Args:
        record: a dataclass, whose parameters follow the function's own.
        documented: by parameter its line in the section of arguments of the docstring.
    """

    def decorate(function: Callable[..., R], /) -> Any:
        """The function, called with the fields of the record as its keywords."""
        *own, _ = inspect.signature(function).parameters.values()
        parameters = [*own, *inspect.signature(record).parameters.values()]
        returned = inspect.signature(function).return_annotation
        signature = inspect.Signature(parameters, return_annotation=returned)
        name = function.__qualname__.removesuffix(".__init__")

        @wraps(function)
        def call(*arguments: Any, **named: Any) -> R:
            try:
                values = signature.bind(*arguments, **named).arguments
            except TypeError as error:
                raise UsageError(f"{name}: {error}") from None
            first = {each.name: values.pop(each.name, each.default) for each in own}
            hold(name, first, function)
            hold(name, values, record)
            return function(*first.values(), record(**values))  # type: ignore[call-arg]

        call.__signature__ = signature  # type: ignore[attr-defined]
        kept = (*(each.name for each in own), "return")
        call.__annotations__ = {
            name: hint for name, hint in function.__annotations__.items() if name in kept
        }
        call.__doc__ = _with_arguments(function.__doc__ or "", documented)
        return call

    return decorate


def _with_arguments(docs: str, documented: Mapping[str, str]) -> str:
    """A docstring whose section of arguments has further lines."""
    if not documented:
        return docs
    before, heading, after = docs.partition("Args:\n")
    indent = " " * (len(before) - len(before.rstrip(" ")) + 4)
    lines = [
        textwrap.fill(
            text, 100, initial_indent=f"{indent}{name}: ", subsequent_indent=f"{indent}    "
        )
        for name, text in documented.items()
    ]
    own, gap, rest = after.partition("\n\n")
    return "".join((before, heading, own, "\n", "\n".join(lines), gap, rest))


def hold(name: str, values: Mapping[str, object], annotated: Callable[..., Any]) -> None:
    """Hold values by name to the annotations of a function, or of a record.

    Raises:
        UsageError: one is of another kind.
    """
    hints = _hints(annotated)
    for parameter, value in values.items():
        hint = hints.get(parameter, Any)
        if not _fits(value, hint):
            raise UsageError(
                f"{name}: {parameter} is {_said(value)}, and has to be {_words(hint)}"
                f"{_advice(value, hint)}"
            )


@cache
def _hints(annotated: Callable[..., Any]) -> dict[str, Any]:
    """The annotations that can be resolved now; others hold nothing."""
    found: dict[str, Any] = {}
    for owner in reversed(getattr(annotated, "__mro__", (annotated,))):
        known = vars(sys.modules[owner.__module__])
        for name, annotation in inspect.get_annotations(owner).items():
            alone = types.SimpleNamespace(__annotations__={name: annotation})
            with suppress(NameError):  # what is imported for type checkers alone
                found |= typing.get_type_hints(alone, globalns=known, include_extras=True)
    return found


def _fits(value: object, hint: Any) -> bool:  # noqa: C901, PLR0912 - a table of kinds
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or isinstance(hint, TypeVar):
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Annotated:
        return _fits(value, parts[0]) and value in parts[1]
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if hint is None or hint is type(None):
        return value is None
    if hint is bool:
        return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")
    if hint is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, numbers.Real) and not isinstance(value, bool)
    kind = origin or hint
    if kind is Callable:
        return callable(value)
    if not isinstance(kind, type) or kind.__module__ == "numpy":  # lists and numbers become arrays
        return True
    if issubclass(kind, Mapping):
        return isinstance(value, Mapping) and (
            not parts or all(_fits(k, parts[0]) and _fits(v, parts[1]) for k, v in value.items())
        )
    if kind in (Sequence, Iterable):
        listed = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
        several = value if listed and isinstance(value, Sequence | set | frozenset) else ()
        return listed and all(_fits(each, part) for part in parts for each in several)
    if kind is tuple and parts:
        return isinstance(value, tuple | list) and all(
            _fits(each, part) for each, part in zip(value, parts, strict=False)
        )
    return isinstance(value, kind)


def _words(hint: Any) -> str:
    """The checks of an annotation."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        listed = list(dict.fromkeys(_words(part) for part in parts))
        return f"{', '.join(listed[:-1])} or {listed[-1]}"
    if origin is Annotated:
        return f"{_words(parts[0])} from {parts[1].start} to {parts[1].stop - 1}"
    if origin is Literal:
        return " or ".join(map(repr, parts))
    kind = hint if hint in _WORDS else origin or hint
    if kind in _WORDS:
        return _WORDS[kind]
    if kind in (Sequence, Iterable):
        return f"a list, each {_words(parts[0])}" if parts else "a list"
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return f"a dict of {_words(parts[0])} to {_words(parts[1])}" if parts else "a dict"
    if isinstance(kind, type) and issubclass(kind, os.PathLike):
        return "a path"
    return "anything" if hint is Any else f"a {getattr(kind, '__name__', kind)}"


def _said(value: object) -> str:
    """A value as a message shows it: short, and of one line."""
    if isinstance(value, str | int | float | type(None)):
        text = ascii(value)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return f"of the kind {type(value).__name__}"


def _advice(value: object, hint: Any) -> str:
    models = any(getattr(part, "__name__", "") == "TrainingGraph" for part in typing.get_args(hint))
    is_file = isinstance(value, str | bytes | os.PathLike)
    return ": gradtool.load reads a file" if models and is_file else ""
