"""Docstrings of the public names: sections for what is given, and an example that runs."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cached_property
from pathlib import Path
from textwrap import dedent
from types import FunctionType
from typing import Any, get_args, get_type_hints

import pytest

import gradtool as gt

ROOT = Path(__file__).parents[1]
ERRORS = {
    name
    for name in gt.__all__
    if inspect.isclass(getattr(gt, name)) and issubclass(getattr(gt, name), Exception)
}
NAMES = sorted(set(gt.__all__) - ERRORS)
REGISTERS = {"composite", "gradient", "kernel", "loss", "shape"}
BEHIND = {property: "fget", cached_property: "func", classmethod: "__func__"}
MIRRORED = re.compile(r"\b[Ss]ee `gradtool\.([A-Z]\w+)\.(\w+)`")
NOUN = re.compile(r"(The|An?|Whether|Bytes) ")
UNIT = re.compile(r"\b([Bb]ytes|FLOPs|seconds|numbers?)\b")
RUN = """\
import sys, warnings
import numpy as np
import gradtool as gt
warnings.simplefilter("error")
for code, name in {examples!r}.items():
    exec(compile(code, name, "exec"), {{"gt": gt, "np": np}})
"""


def sections(docs: str) -> dict[str, str]:
    """The sections of a docstring by heading."""
    found: dict[str, list[str]] = {}
    heading = ""
    for line in docs.splitlines():
        if line and not line.startswith(" "):
            heading = line.removesuffix(":") if line.endswith(":") and " " not in line else ""
        elif heading:
            found.setdefault(heading, []).append(line)
    return {heading: dedent("\n".join(lines)) for heading, lines in found.items()}


def sections_of(name: str) -> dict[str, str]:
    """The sections of a public name, those of a class and of how it is made as one."""
    public = getattr(gt, name)
    docs = [inspect.getdoc(public) or ""]
    if inspect.isclass(public) and not is_dataclass(public):
        docs.append(inspect.getdoc(public.__init__) or "")
    return sections("\n".join(docs))


def entries(found: dict[str, str], heading: str) -> list[str]:
    """The names before the colons of a section."""
    lines = found.get(heading, "").splitlines()
    return [line.split(":")[0] for line in lines if line and line[0] != " "]


def imported(module: str) -> dict[str, Any]:
    """The names that a module takes from gradtool, also those for its annotations alone."""
    found = {}
    for node in ast.walk(ast.parse(Path(sys.modules[module].__file__).read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("gradtool"):
            home = importlib.import_module(node.module)
            found |= {each.name: vars(home).get(each.name) for each in node.names}
    return found


def annotated(public: Any) -> Iterator[type]:
    """The classes of gradtool that public attributes of a class are, or that a function returns."""
    is_class = inspect.isclass(public)
    homes = {each.__module__ for each in (public.__mro__ if is_class else [public])}
    local = {n: o for home in homes if "gradtool" in home for n, o in imported(home).items()}
    hints = get_type_hints(public, localns=local)
    shown = (not name.startswith("_") if is_class else name == "return" for name in hints)
    todo = [hint for hint, is_shown in zip(hints.values(), shown, strict=True) if is_shown]
    for hint in todo:
        todo += get_args(hint)
        if inspect.isclass(hint) and hint.__module__.startswith("gradtool"):
            yield hint


def members(kind: type) -> dict[str, Any]:
    """The public methods and properties of a class and of its bases, as functions."""
    found = {name: inspect.getattr_static(kind, name) for name in dir(kind) if name[0] != "_"}
    functions = {name: function_of(member) for name, member in found.items()}
    return {name: each for name, each in functions.items() if each is not None}


def function_of(member: Any) -> Any:
    """The function of a method or a property; None of any other attribute."""
    member = getattr(member, BEHIND.get(type(member), ""), member)
    return inspect.unwrap(member, stop=signed) if isinstance(member, FunctionType) else None


def signed(function: Any) -> bool:
    """Whether a function says itself what it takes, as one with the fields of a record does."""
    return hasattr(function, "__signature__")


def reached() -> dict[str, type]:
    """The public classes, those of their attributes, and those of what is returned, by name."""
    found = {name: getattr(gt, name) for name in NAMES if inspect.isclass(getattr(gt, name))}
    returning = [inspect.unwrap(getattr(gt, name)) for name in NAMES if name not in found]
    returning += [each for kind in found.values() for each in members(kind).values()]
    for public in (*found.values(), *returning):
        found = {kind.__name__: kind for kind in annotated(public)} | found
    return found


CLASSES = reached()
MEMBERS = {
    function.__qualname__: (kind, name, function)
    for kind in CLASSES.values()
    for name, function in members(kind).items()
}


def raised(kind: type, function: Any, seen: set[str]) -> set[str]:
    """The errors that a method raises, or that others of its class do which it calls."""
    found = set()
    for node in ast.walk(ast.parse(dedent(inspect.getsource(function)))):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            found.add(ast.unparse(node.exc.func))
        if isinstance(node, ast.Attribute) and ast.unparse(node) == f"self.{node.attr}":
            called = function_of(inspect.getattr_static(kind, node.attr, None))
            if called is not None and node.attr not in seen:
                seen.add(node.attr)
                found |= raised(kind, called, seen)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_docstring_has_every_argument_in_order(name):
    found = sections_of(name)
    given = [*inspect.signature(getattr(gt, name)).parameters]

    assert (entries(found, "Args") or entries(found, "Attributes")) == given
    assert found["Example"].strip()
    if "Args" in found and name not in REGISTERS:
        assert entries(found, "Raises")


@pytest.mark.sample(4)
@pytest.mark.parametrize("member", MEMBERS)
def test_a_member_says_what_it_takes_returns_and_raises(member):
    kind, name, function = MEMBERS[member]
    docs, signature = inspect.getdoc(function), inspect.signature(function)
    mirrored, returned = MIRRORED.search(docs), signature.return_annotation
    also = sections(inspect.getdoc(getattr(CLASSES[mirrored[1]], mirrored[2]))) if mirrored else {}
    found = also | sections(docs)

    assert entries(found, "Args") == [n for n in signature.parameters if n not in ("self", "cls")]
    assert raised(kind, function, set()) <= {*entries(found, "Raises")}
    if isinstance(inspect.getattr_static(kind, name), (property, cached_property)):
        assert UNIT.search(docs) or not re.search(r"\bint\b", returned)
    else:
        assert returned in ("None", "Self") or NOUN.match(docs) or "Returns" in found


def attributes(kind: type) -> list[str]:
    """The public fields of a record, or what else a class sets when it is made."""
    if is_dataclass(kind):
        names = [each.name for each in fields(kind)]
    else:
        source = inspect.getsource(kind.__init__) if "__init__" in vars(kind) else ""
        names = re.findall(r"\bself\.(\w+) = ", source)
    return [name for name in names if not name.startswith("_")]


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)
def test_a_class_says_what_its_attributes_are(kind):
    names, docs = attributes(kind), inspect.getdoc(kind)

    assert names == [n for n in names if re.search(rf"`{n}`|^ *{n}: ", docs, re.MULTILINE)]


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_an_error_says_what_it_is(name):
    assert vars(getattr(gt, name)).get("__doc__")


@pytest.mark.exhaustive
def test_examples_of_docstrings_run_beside_the_samples(tmp_path):
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    examples = {sections_of(name)["Example"]: name for name in NAMES}
    ran = subprocess.run(
        [sys.executable, "-c", RUN.format(examples=examples)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert not ran.returncode, ran.stderr
