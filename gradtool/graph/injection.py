"""Dependency injection: providers of higher rooms, found by role when first needed.

`gradtool/__init__.py` maps roles to providers, and nobody else does; so no room imports upward, and
a test may inject another provider.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
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
        from importlib import import_module

        module, _, name = _PROVIDERS[role].partition(":")
        found = import_module(module)
        _FOUND[role] = getattr(found, name) if name else found
    return _FOUND[role]
