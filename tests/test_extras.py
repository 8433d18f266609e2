"""Tests that need what `scripts/test` has not got, or run only in part there, have a marker.

`.ci/run` runs the suite as a stranger would, and after that what is marked, with everything there.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import sampled

from gradtool.text.extras import REQUIREMENTS

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


@pytest.mark.exhaustive
def test_what_needs_an_extra_is_marked():
    found = {path: list(unmarked(path.read_text(encoding="utf-8"))) for path in TESTS}

    assert {path: names for path, names in found.items() if names} == {}


def test_an_unmarked_test_is_found():
    source = "import pytest\n\ndef test_a():\n    pytest.importorskip('torch.nn')\n"

    assert list(unmarked(source)) == ["test_a"]
    assert list(unmarked(source.replace("def", "@pytest.mark.extra\ndef"))) == []
    assert list(unmarked(source + "\npytest.importorskip('numba')\n")) == ["the module", "test_a"]


def test_one_module_looks_beside_the_repository():
    looks = re.compile(r'/\s*"shared"')
    files = sorted((ROOT / "tests").rglob("*.py"))

    assert [p.name for p in files if looks.search(p.read_text(encoding="utf-8"))] == ["shared.py"]


def test_a_sample_has_the_first_of_each_kind_and_the_rest_is_marked():
    values = [f"{kind}{i}" for i in range(100) for kind in "abc"]
    drawn, rest = [], []
    for each in sampled(values, every=5, by=lambda value: value[0]):
        (rest if each.marks else drawn).extend(each.values)
        assert [mark.name for mark in each.marks] in ([], ["exhaustive"], ["slow"])

    assert {"a0", "b0", "c0"} <= set(drawn)
    assert sorted(drawn + rest) == sorted(values)
    assert len(drawn) == pytest.approx(len(values) / 5, rel=0.1)


def test_development_needs_no_extra():
    extras = PROJECT["optional-dependencies"]
    names = {each.partition(">")[0] for each in extras["dev"]}

    assert names.isdisjoint({"torch", "numba"})


def test_what_messages_say_to_install_is_what_the_extras_ask_for():
    asked = PROJECT["optional-dependencies"]

    for extra, requirements in REQUIREMENTS.items():
        assert list(requirements) == [each.partition(";")[0] for each in asked[extra]]


def test_nothing_is_said_to_come_from_an_index_that_has_no_gradtool():
    written = list((ROOT / "gradtool").rglob("*.py"))
    written += [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]

    for path in written:
        assert not re.search(r"install '?gradtool\b", path.read_text(encoding="utf-8")), path
