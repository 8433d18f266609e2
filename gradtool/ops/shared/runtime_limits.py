"""Limits of one step beyond its plan: turns of loops, and bytes of data-dependent sizes.

A step has one allowance, whatever loops lie in loops: their turns are counted together, and so
are the arrays that every body holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass

from gradtool.errors import GradtoolError
from gradtool.graph.limits import DEFAULT


class Exhausted(GradtoolError):
    """A step at its limit; `where` is the node that asked for more."""

    exit_code = 4

    def __init__(self, what: str, where: str = "") -> None:
        super().__init__(f"{where}: {what}" if where else what)
        self.what, self.where = what, where


@dataclass
class Allowance:
    """Limits of a step, and its turns and bytes so far."""

    most_turns: int
    most_bytes: int
    turns: int = 0
    bytes: int = 0

    def turn(self) -> None:
        """Count one turn of a loop. Raises Exhausted where it is one too many."""
        self.turns += 1
        if self.turns > self.most_turns:
            raise Exhausted(
                f"goes on after {self.most_turns} turns of loops in one step, which is the limit; "
                "--max-turns allows more"
            )

    def require(self, more: int) -> None:
        """Raise Exhausted where so many bytes more are too many."""
        if self.bytes + more > self.most_bytes:
            raise Exhausted(
                f"needs {self.bytes + more} bytes for values whose sizes depend on data; the limit "
                f"is {self.most_bytes}; --max-dynamic allows more"
            )

    def take(self, more: int) -> None:
        """Count bytes held from now on; less than zero if given back."""
        if more > 0:
            self.require(more)
        self.bytes += more


_ASKED: ContextVar[tuple[int | None, int | None]] = ContextVar(
    "gradtool.allowance", default=(None, None)
)
_STEP: ContextVar[Allowance | None] = ContextVar("gradtool.step", default=None)


@contextmanager
def limited(turns: int | None, most_bytes: int | None) -> Iterator[None]:
    """Give each step within so many turns and bytes; None leaves either as it is."""
    before = _ASKED.get()
    asked = (before[0] if turns is None else turns, before[1] if most_bytes is None else most_bytes)
    token = _ASKED.set(asked)
    try:
        yield
    finally:
        _ASKED.reset(token)


def current() -> Allowance:
    """The allowance of the step that runs; a new one where none does."""
    return _STEP.get() or _new(0)


class of_step:  # noqa: N801 - read as a word of a `with` statement
    """A new allowance for a step whose plan takes so many bytes; none for a body within one."""

    __slots__ = ("_planned", "_token")

    def __init__(self, planned: int) -> None:
        self._planned = planned
        self._token: Token[Allowance | None] | None = None

    def __enter__(self) -> None:
        if _STEP.get() is None:
            self._token = _STEP.set(_new(self._planned))

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _STEP.reset(self._token)


def _new(planned: int) -> Allowance:
    turns, most_bytes = _ASKED.get()
    least = max(DEFAULT.dynamic_bytes, planned)
    return Allowance(
        DEFAULT.turns if turns is None else turns, least if most_bytes is None else most_bytes
    )
