"""What can be said about CuPy without a device."""

from __future__ import annotations

import ast
from operator import attrgetter
from pathlib import Path

import pytest

import gradtool.ops as package


def sources() -> list[Path]:
    return sorted(Path(package.__file__).parent.glob("*/kernel*.py"))


def array_functions() -> list[str]:
    """The dotted names after `xp.` in the kernel bodies."""
    names = set()
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            dotted = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
            if dotted.startswith("xp.") and dotted.replace(".", "").isidentifier():
                names.add(dotted.removeprefix("xp."))
    return sorted(names)


@pytest.mark.exhaustive
def test_kernels_call_an_array_library():
    assert "matmul" in array_functions()


@pytest.mark.parametrize("name", array_functions())
def test_every_function_that_kernels_call_exists_in_cupy(name):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

    attrgetter(name)(cupy)


@pytest.mark.parametrize("path", sources(), ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_what_is_written_in_place_is_one_array(path):
    """CuPy copies an operand that begins where the result does and is another array object."""
    twice = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        out = [k.value for k in getattr(node, "keywords", ()) if k.arg == "out"]
        if out and isinstance(out[0], ast.Subscript) and not is_item(out[0]):
            same = ast.unparse(out[0])
            twice += [ast.unparse(node) for a in node.args if ast.unparse(a) == same]
    assert not twice


def is_item(node: ast.Subscript) -> bool:
    """Whether it is one of a list, `out[0]`, which is the same object each time."""
    return isinstance(node.slice, ast.Constant) and ast.unparse(node.value) in ("out", "work")
