"""Warnings of gradtool as lines on stderr, as a command says them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gradtool.errors import GradtoolWarning
from gradtool.text.names import escape


@contextmanager
def one_line_warnings() -> Iterator[None]:
    """Our warnings are said as errors are, each every time; those of others as Python has them."""
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
            if not issubclass(category, GradtoolWarning):
                shown(message, category, *where)
            elif sys.stderr is not None:
                sys.stderr.write(f"gradtool: {escape(' '.join(str(message).split()))}\n")

        warnings.showwarning = show  # type: ignore[assignment]
        warnings.simplefilter("always", GradtoolWarning)
        yield
