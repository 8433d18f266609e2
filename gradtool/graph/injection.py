"""Dependency injection: providers of higher rooms, found by role when first needed.

`gradtool/__init__.py` maps roles to providers, and nobody else does; so no room imports upward, and
a test may inject another provider.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    Role = Literal["bodies", "evaluate", "rules", "timing"]

_PROVIDERS: dict[Role, str] = {}
_FOUND: dict[Role, Any] = {}


def provide(role: Role, path: str) -> None:
    """Let `package.module:name`, or a whole module, play a role."""
    _PROVIDERS[role] = path
    _FOUND.pop(role, None)


def provided(role: Role) -> Any:
    """The provider of a role."""
    if role not in _FOUND:
        _FOUND[role] = _at(_PROVIDERS[role])
    return _FOUND[role]


def by_need(path: str) -> Callable[..., Any]:
    """The function `package.module:name` for a table, imported when it is first called."""

    def called(*given: Any) -> Any:
        return _at(path)(*given)

    return called


def _at(path: str) -> Any:
    from importlib import import_module

    module, _, name = path.partition(":")
    found = import_module(module)
    return getattr(found, name) if name else found
