"""What the modules of the families register, read off by importing all of them.

`python tests/index.py` writes it to where the registries have it from.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import gradtool.ops
from gradtool.graph.families import full_name
from gradtool.graph.registry import FAMILIES, INDEX, Registry

FILE = Path(str(gradtool.ops.__file__)).with_name(INDEX)


def _read_off() -> dict[str, dict[str, list[str]]]:
    """By module and registry the operators, in a process that has imported no family yet."""
    found: dict[str, dict[str, set[str]]] = {}
    add = Registry.add

    def noted(registry, entry):
        frame = sys._getframe(1)
        while frame.f_code.co_name != "<module>":
            frame = frame.f_back
        module = frame.f_globals["__name__"].removeprefix(f"{FAMILIES}.")
        names = found.setdefault(module, {}).setdefault(registry.name, set())
        names.add(full_name(entry.domain, entry.op))
        add(registry, entry)

    Registry.add = noted
    for module in walk_packages(gradtool.ops.__path__, f"{FAMILIES}."):
        import_module(module.name)
    return {
        module: {name: sorted(names) for name, names in sorted(registries.items())}
        for module, registries in sorted(found.items())
    }


def text() -> str:
    """The file, one module a line."""
    rows = (f"  {json.dumps(name)}: {json.dumps(held)}" for name, held in _read_off().items())
    return "{\n" + ",\n".join(rows) + "\n}\n"


if __name__ == "__main__":
    if "--print" in sys.argv:
        sys.stdout.write(text())
    else:
        FILE.write_text(text(), encoding="utf-8")
