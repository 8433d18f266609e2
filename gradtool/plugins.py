"""Extensions from outside: entry points of installed packages, and functions named by path."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from gradtool.errors import UsageError

RULES = "gradtool.rules"
KERNELS = "gradtool.kernels"
LOSSES = "gradtool.losses"


def load_plugins(
    group: str,
    registry: MutableMapping[Any, list[Any]],
    use: Callable[[str, Any], None] = lambda _name, _loaded: None,
) -> None:
    """Import the entry points of `group`, by name; `use` gets the name and what it stands for.

    What is registered while a plug-in loads stays; a plug-in that raises is named in one line on
    stderr, and what it registered before is taken back.
    """
    from importlib.metadata import entry_points

    for entry in sorted(entry_points(group=group), key=lambda e: (e.name, e.value)):
        before = {key: list(versions) for key, versions in registry.items()}
        try:
            use(entry.name, entry.load())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - others' code may raise anything
            registry.clear()
            registry.update(before)
            owner = f" of {entry.dist.name}" if entry.dist is not None else ""
            _say(f"plug-in {entry.name!r}{owner} ({group}) is skipped: {_reason(error)}")


def _reason(error: BaseException) -> str:
    detail = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {detail}" if detail else type(error).__name__


def _say(message: str) -> None:
    from gradtool.text.names import escape

    if sys.stderr is not None:
        sys.stderr.write(f"gradtool: {escape(message)}\n")


def function_at(path: str) -> Callable[..., Any] | None:
    """The function that `pkg.mod:name` stands for; None if there is no such module.

    Modules of the working folder are found, as by `python -m`.

    Raises:
        UsageError: the module cannot be imported, or has no such function.
    """
    module, _, name = path.partition(":")
    with _working_folder():
        try:
            if not name.isidentifier() or find_spec(module) is None:
                return None
        except (ImportError, ValueError):
            return None
        try:
            found = getattr(import_module(module), name, None)
        except Exception as error:
            raise UsageError(f"{module} cannot be imported: {_reason(error)}") from error
    if not callable(found):
        raise UsageError(f"{module} has no function {name!r}")
    return found  # type: ignore[no-any-return]


@contextmanager
def _working_folder() -> Iterator[None]:
    sys.path.insert(0, "")
    try:
        yield
    finally:
        sys.path.remove("")
