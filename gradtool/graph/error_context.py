"""Error context: the node behind an exception of a rule, kernel or formula.

A rule checks the conditions of its operator's meaning, not every inconsistency of a file: numpy
does that. Its complaint becomes one line that names the node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gradtool.errors import ModelError

if TYPE_CHECKING:
    from types import TracebackType

COMPLAINTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NotImplementedError,
    TypeError,
    ValueError,
)
_LONGEST = 200


class NodeFailed(ModelError):
    """A node whose attributes or inputs something could not work with."""


class blamed:  # noqa: N801 - used like a function
    """Turn a complaint within into one line: which node, `what` failed, and why.

    A class, since it is entered for every node: a generator takes several times as long.

    Raises:
        NodeFailed: in place of an accidental exception.
    """

    __slots__ = ("_label", "_what")

    def __init__(self, label: Callable[[], str], what: str) -> None:
        self._label, self._what = label, what

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        _: type[BaseException] | None,
        error: BaseException | None,
        _where: TracebackType | None,
    ) -> None:
        if isinstance(error, COMPLAINTS):
            raise failed(self._label(), self._what, error) from error


def failed(label: str, what: str, error: BaseException) -> NodeFailed:
    """The error to raise in place of a complaint."""
    reason = " ".join(str(getattr(error, "message", error)).split())[:_LONGEST]
    return NodeFailed(
        f"{label}: {what} fails on it ({type(error).__name__}: {reason}); its inputs or attributes "
        "do not fit each other, or, if another runtime runs the model, this is a bug to report"
    )
