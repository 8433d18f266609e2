"""Tests that need what `scripts/test` does not install can be found by their marker.

`.ci/run` runs the suite as a stranger would, and after that `-m extra` with everything installed.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
INSTALLED = {"onnxruntime", "cupy", "xdist", "PIL"}  # by `dev`; CuPy has the marker `gpu`
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))


def wanted(node: ast.AST) -> list[str]:
    """The modules that `pytest.importorskip` asks for in a piece of code."""
    return [
        str(call.args[0].value).partition(".")[0]
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) == "pytest.importorskip"
        and isinstance(call.args[0], ast.Constant)
    ]


def unmarked(source: str) -> Iterator[str]:
    """The tests of a module that may be skipped for want of an extra, and do not say so."""
    module = ast.parse(source)
    functions = [n for n in module.body if isinstance(n, ast.FunctionDef)]
    rest = [n for n in module.body if n not in functions]
    if any("pytest.mark.extra" in ast.unparse(n) for n in rest):
        return
    if any(set(wanted(n)) - INSTALLED for n in rest):
        yield "the module"
    for function in functions:
        marks = [ast.unparse(d) for d in function.decorator_list]
        needs = set(wanted(function)) - INSTALLED
        if function.name.startswith("test_") and needs and "pytest.mark.extra" not in marks:
            yield function.name


@pytest.mark.parametrize("path", TESTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_what_needs_an_extra_is_marked(path):
    assert list(unmarked(path.read_text())) == []


def test_an_unmarked_test_is_found():
    source = "import pytest\n\ndef test_a():\n    pytest.importorskip('torch.nn')\n"

    assert list(unmarked(source)) == ["test_a"]
    assert list(unmarked(source.replace("def", "@pytest.mark.extra\ndef"))) == []
    assert list(unmarked(source + "\npytest.importorskip('numba')\n")) == ["the module", "test_a"]


def test_development_needs_no_extra():
    extras = PROJECT["optional-dependencies"]
    names = {each.partition(">")[0] for each in extras["dev"]}

    assert names.isdisjoint({"torch", "numba"})
