"""Who takes part in what ranks compute together in the middle of a step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from gradtool.ranks.group import Group

_GROUP: ContextVar[Group | None] = ContextVar("group", default=None)


@contextmanager
def together(group: Group) -> Iterator[None]:
    """Steps run as those of one rank of a group."""
    token = _GROUP.set(group)
    try:
        yield
    finally:
        _GROUP.reset(token)


def taking_part() -> Group | None:
    """The group whose rank this is; None where nobody said so."""
    return _GROUP.get()
