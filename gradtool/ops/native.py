"""Kernels of the native library, operator by operator: where they fit, and how they are bound.

A program is made for them (`program/native.py`) whether or not the library is there, so that a plan
is the same on every machine.  Which kernel an operator gets depends on its shapes, types and
attributes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, cast

import numpy as np

from gradtool.graph.families import split_name
from gradtool.graph.registry import Registry
from gradtool.graph.specs import Spec
from gradtool.native.call import Call
from gradtool.ops.shared.types import Specs

Bound = Callable[[], object]
EXACT = "exact"  # the attribute that a native step of such a program has
Layouts = Literal["rows", "any", "alike", "channels", "last"]


@dataclass(frozen=True)
class Native:
    """A kernel of the library for one operator.

    `bind(*inputs, out, work, **attributes)` gives what runs it on those arrays, as often as it is
    called; `fits(*inputs, out, **attributes)` says of specs whether it can, and
    `work(*inputs, out, **attributes)` the arrays that it then needs.

    Of layouts it takes `rows` alone, the last axis innermost, or `any`; or any, best if all images
    of its result's shape lie `alike`; or one that all its images have, beside vectors of
    `channels`; or any, and it wants channels `last`.  Inputs and outputs of the numbers in
    `rows_in` and `rows_out`, weights, lie in rows all the same.  A `strided` one takes views with
    any strides, and one that has `exact` takes it as an attribute.  `method`, asked as `fits`,
    names how it computes, where there are several ways.
    """

    domain: str
    op: str
    since: int
    bind: Callable[..., Bound]
    fits: Callable[..., bool]
    work: Callable[..., Specs]
    layouts: Layouts = "rows"
    strided: bool = False
    exact: bool = False
    rows_in: tuple[int, ...] = ()
    rows_out: tuple[int, ...] = ()
    method: Callable[..., str] = lambda *_inputs, **_rest: ""


NATIVE = Registry[Native]("native", "native", function="bind")


def native(
    name: str,
    *,
    fits: Callable[..., bool],
    work: Callable[..., Specs] = lambda *_inputs, **_rest: (),
    since: int = 1,
    layouts: Layouts = "rows",
    strided: bool = False,
    exact: bool = False,
    rows_in: tuple[int, ...] = (),
    rows_out: tuple[int, ...] = (),
    method: Callable[..., str] = lambda *_inputs, **_rest: "",
) -> Callable[[Callable[..., Bound]], Callable[..., Bound]]:
    """Register the decorated function to bind the native kernel of operator `name`."""

    def register(bind: Callable[..., Bound]) -> Callable[..., Bound]:
        NATIVE.add(
            Native(
                *split_name(name), since, bind, fits, work, layouts, strided, exact, rows_in,
                rows_out, method,
            )
        )  # fmt: skip
        return bind

    return register


def find(domain: str, op: str, version: int) -> Native | None:
    """The native kernel of an operator at an opset version, or None."""
    return NATIVE.find(domain, op, version)


def are_floats(*specs: Spec | None) -> bool:
    """Whether all present arrays are float32, the one type of the library."""
    return all(spec is None or spec.dtype == np.float32 for spec in specs)


def room(size: int) -> list[Spec]:
    """A workspace of so many bytes."""
    return [Spec((-(-size // 4),), np.dtype(np.float32))] if size else []


def in_turn(*calls: Bound) -> Bound:
    """Several calls as one: adjacent calls of the library become one call of it."""
    if len(calls) == 1:
        return calls[0]
    linked = list(_linked(parts_of(calls)))
    return linked[0] if len(linked) == 1 else _InTurn(linked)


def parts_of(calls: Iterable[Bound]) -> Iterator[Bound]:
    """The calls that calls are made of, in order."""
    for call in calls:
        yield from call.calls if isinstance(call, _InTurn) else (call,)


def _linked(calls: Iterable[Bound]) -> Iterator[Bound]:
    for is_of_c, group in groupby(calls, lambda call: isinstance(call, Call)):
        found = list(group)
        if is_of_c and len(found) > 1:
            yield Call.joined(cast("list[Call]", found))
        else:
            yield from found


class _InTurn:
    """Calls one after the other."""

    def __init__(self, calls: Sequence[Bound]) -> None:
        self.calls = calls

    def __call__(self) -> None:
        for call in self.calls:
            call()
