"""Membership of ranks in the collectives of a step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from gradtool.ranks.group import Group
from gradtool.ranks.line import Line

_GROUP: ContextVar[Group | None] = ContextVar("group", default=None)
_LINE: ContextVar[Line | None] = ContextVar("line", default=None)


@contextmanager
def together(group: Group) -> Iterator[None]:
    """Run steps as one rank of a group."""
    token = _GROUP.set(group)
    try:
        yield
    finally:
        _GROUP.reset(token)


def taking_part() -> Group | None:
    """The group whose rank this is; None where nobody said so."""
    return _GROUP.get()


@contextmanager
def in_line(stages: Line) -> Iterator[None]:
    """Let steps exchange values with the stages beside this one."""
    token = _LINE.set(stages)
    try:
        yield
    finally:
        _LINE.reset(token)


def line() -> Line | None:
    """The stages among which this one is; None where nobody said so."""
    return _LINE.get()
