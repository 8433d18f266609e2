"""What can be said about CuPy without a device."""

from __future__ import annotations

import ast
from operator import attrgetter
from pathlib import Path

import pytest

import gradtool.kernels as package


def array_functions() -> list[str]:
    """The dotted names after `xp.` in the kernel bodies."""
    names = set()
    for path in Path(package.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            dotted = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
            if dotted.startswith("xp.") and dotted.replace(".", "").isidentifier():
                names.add(dotted.removeprefix("xp."))
    return sorted(names)


def test_kernels_call_an_array_library():
    assert "matmul" in array_functions()


@pytest.mark.parametrize("name", array_functions())
def test_every_function_that_kernels_call_exists_in_cupy(name):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

    attrgetter(name)(cupy)
