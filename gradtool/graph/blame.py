"""Which node is to blame: what rules, kernels and formulas raise on a node that they do not fit.

A rule checks what its operator's meaning depends on, not every inconsistency that a file may have:
numpy does that. Its complaint becomes one line that names the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gradtool.errors import ModelError

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


@contextmanager
def blamed(label: Callable[[], str], what: str) -> Iterator[None]:
    """Turn a complaint into one line: which node, `what` failed, and why.

    Raises:
        NodeFailed: in place of what was raised by accident.
    """
    try:
        yield
    except COMPLAINTS as error:
        raise failed(label(), what, error) from error


def failed(label: str, what: str, error: BaseException) -> NodeFailed:
    """The error to raise in place of a complaint."""
    reason = " ".join(str(getattr(error, "message", error)).split())[:_LONGEST]
    return NodeFailed(
        f"{label}: {what} fails on it ({type(error).__name__}: {reason}); its inputs or attributes "
        "do not fit each other, or, if another runtime runs the model, this is a bug to report"
    )
