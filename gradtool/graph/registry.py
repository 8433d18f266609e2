"""Registries by operator: gradient rules, kernels, costs, composites."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import Generic, Protocol, TypeVar

from gradtool import plugins
from gradtool.graph.families import split_name

FAMILIES = "gradtool.ops"
INDEX = "index.json"


class Registered(Protocol):
    """An entry of a registry: for one operator, from an opset version on."""

    @property
    def domain(self) -> str: ...
    @property
    def op(self) -> str: ...
    @property
    def since(self) -> int: ...


Entry = TypeVar("Entry", bound=Registered)
Key = tuple[str, str]  # domain and operator


class Registry(Generic[Entry]):
    """Entries by operator and version, from parts of the families of operators, and from plug-ins.

    Plug-ins, the entry points of `group`, are imported when something is first looked up.  For an
    operator, those modules are imported that `index.json` of the families has under `name`; for one
    that it lacks, and to list all, every module of `parts` (`kernel.py`, `kernel_grad.py`).

    Of entries from the same version on, one from outside the families wins, by the module of its
    `function`, the field of that name where there is one: the order of imports decides nothing.
    """

    def __init__(
        self, name: str, *parts: str, function: str = "", group: str | None = None
    ) -> None:
        self.name, self._parts, self._function, self._group = name, parts, function, group
        self._entries: dict[Key, list[Entry]] = {}
        self._looked_up: set[Key] = set()
        self._extended = self._complete = False

    def add(self, entry: Entry) -> None:
        """Register an entry."""
        versions = self._entries.setdefault((entry.domain, entry.op), [])
        versions.append(entry)
        versions.sort(key=self._rank)

    def _rank(self, entry: Entry) -> tuple[int, bool]:
        home = getattr(getattr(entry, self._function, None), "__module__", None) or ""
        return entry.since, not f"{home}.".startswith(f"{FAMILIES}.")

    def by_operator(self) -> dict[Key, list[Entry]]:
        """The entries of each operator, by domain and name; the oldest first."""
        self.extend()
        self._load_all()
        return self._entries

    def find(self, domain: str, op: str, version: int) -> Entry | None:
        """The entry of an operator at an opset version, or None. The newest old enough wins."""
        key = "" if domain == "ai.onnx" else domain, op
        self.extend()
        self._load(key)
        for entry in reversed(self._entries.get(key, ())):
            if entry.since <= version:
                return entry
        return None

    def entries(self) -> list[Entry]:
        """Every entry, by name."""
        return [entry for _, found in sorted(self.by_operator().items()) for entry in found]

    def names(self, domain: str) -> list[str]:
        """The operators of a domain that have entries, by name; none is imported for it."""
        self.extend()
        found = {op for of, op in (*self._entries, *self._modules_of()) if of == domain}
        return sorted(found)

    def extend(self) -> None:
        """Import the plug-ins, once; they may replace anything, so all there is comes before."""
        if self._extended:
            return
        self._extended = True
        if self._group is not None and plugins.entries(self._group):
            self._load_all()
            plugins.load_plugins(self._group, self._entries)

    def _load(self, key: Key) -> None:
        """Import the modules that have entries of an operator."""
        if self._complete or key in self._looked_up:
            return
        standard = "", key[1]
        if key in _listed() or standard in _listed():
            for module in self._modules_of().get(key, ()):
                import_module(f"{FAMILIES}.{module}")
            self._looked_up.add(key)
        else:
            self._load_all()

    def _load_all(self) -> None:
        """Import every module of the parts."""
        if not self._complete:
            for part in self._parts:
                for name in _modules(part):
                    import_module(name)
            self._complete = True

    def _modules_of(self) -> Mapping[Key, Sequence[str]]:
        return _index().get(self.name, {})


@cache
def _index() -> Mapping[str, Mapping[Key, Sequence[str]]]:
    """By registry and operator, the modules that register it; `tests/index.py` writes the file."""
    file = import_module(FAMILIES).__file__ or ""
    found: dict[str, dict[Key, list[str]]] = {}
    for module, registries in json.loads(Path(file).with_name(INDEX).read_bytes()).items():
        for registry, names in registries.items():
            for name in names:
                found.setdefault(registry, {}).setdefault(split_name(name), []).append(module)
    return found


@cache
def _listed() -> frozenset[Key]:
    """The operators of all registries that the index has."""
    return frozenset(key for operators in _index().values() for key in operators)


def _modules(part: str) -> Iterator[str]:
    """The modules of a part, family by family."""
    for family in iter_modules(import_module(FAMILIES).__path__, f"{FAMILIES}."):
        spec = find_spec(family.name)  # which does not import it
        for module in iter_modules((spec and spec.submodule_search_locations) or ()):
            if module.name.partition("_")[0] == part:
                yield f"{family.name}.{module.name}"
