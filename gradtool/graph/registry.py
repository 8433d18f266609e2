"""Registries by operator: gradient rules, kernels, costs, composites."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Generic, Protocol, TypeVar

from gradtool import plugins

FAMILIES = "gradtool.ops"


class Registered(Protocol):
    """An entry of a registry: for one operator, from an opset version on."""

    @property
    def domain(self) -> str: ...
    @property
    def op(self) -> str: ...
    @property
    def since(self) -> int: ...


Entry = TypeVar("Entry", bound=Registered)


class Registry(Generic[Entry]):
    """Entries by operator and version, from parts of the families of operators, and from plug-ins.

    The modules of `parts` (`kernel.py`, `kernel_grad.py`) are imported when something is first
    looked up, then the entry points of `group`; `use` gets the name of each and its object.
    """

    def __init__(
        self,
        *parts: str,
        group: str | None = None,
        use: Callable[[str, Any], None] = lambda _name, _loaded: None,
    ) -> None:
        self._parts, self._group, self._use = parts, group, use
        self._entries: dict[tuple[str, str], list[Entry]] = {}
        self._defaults: list[Entry] = []
        self._complete = False

    def add(self, entry: Entry, *, unless_known: bool = False) -> None:
        """Register an entry, or one for an operator that no part has another of."""
        if unless_known:
            self._defaults.append(entry)
            return
        versions = self._entries.setdefault((entry.domain, entry.op), [])
        versions.append(entry)
        versions.sort(key=lambda e: e.since)

    def by_operator(self) -> dict[tuple[str, str], list[Entry]]:
        """The entries of each operator, by domain and name; the oldest first."""
        self._load()
        return self._entries

    def find(self, domain: str, op: str, version: int) -> Entry | None:
        """The entry of an operator at an opset version, or None. The newest old enough wins."""
        domain = "" if domain == "ai.onnx" else domain
        for entry in reversed(self.by_operator().get((domain, op), ())):
            if entry.since <= version:
                return entry
        return None

    def entries(self) -> list[Entry]:
        """Every entry, by name."""
        return [entry for _, found in sorted(self.by_operator().items()) for entry in found]

    def _load(self) -> None:
        if self._complete:
            return
        self._complete = True
        for part in self._parts:
            for name in _modules(part):
                import_module(name)
        for entry in self._defaults:
            if (entry.domain, entry.op) not in self._entries:
                self.add(entry)
        if self._group is not None:
            plugins.load_plugins(self._group, self._entries, self._use)


def _modules(part: str) -> Iterator[str]:
    """The modules of a part, family by family."""
    for family in iter_modules(import_module(FAMILIES).__path__, f"{FAMILIES}."):
        if family.ispkg:
            for module in iter_modules(import_module(family.name).__path__):
                if module.name.partition("_")[0] == part:
                    yield f"{family.name}.{module.name}"
