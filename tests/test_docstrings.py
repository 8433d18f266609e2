"""Docstrings of the public names: sections for what is given, and an example that runs."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

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
RUN = """\
import sys, warnings
import numpy as np
import gradtool as gt
warnings.simplefilter("error")
for code, name in {examples!r}.items():
    exec(compile(code, name, "exec"), {{"gt": gt, "np": np}})
"""


def sections(name: str) -> dict[str, str]:
    """The sections of a docstring by heading, that of a class and of how it is made as one."""
    public = getattr(gt, name)
    docs = [inspect.getdoc(public) or ""]
    if inspect.isclass(public) and not hasattr(public, "__dataclass_fields__"):
        docs.append(inspect.getdoc(public.__init__) or "")
    found: dict[str, list[str]] = {}
    heading = ""
    for line in "\n".join(docs).splitlines():
        if line and not line.startswith(" "):
            heading = line.removesuffix(":") if line.endswith(":") and " " not in line else ""
        elif heading:
            found.setdefault(heading, []).append(line)
    return {heading: dedent("\n".join(lines)) for heading, lines in found.items()}


def entries(section: str) -> list[str]:
    """The names before the colons."""
    return [line.split(":")[0] for line in section.splitlines() if line and line[0] != " "]


@pytest.mark.parametrize("name", NAMES)
def test_a_docstring_has_every_argument_in_order(name):
    found = sections(name)
    given = [*inspect.signature(getattr(gt, name)).parameters]

    assert entries(found.get("Args") or found["Attributes"]) == given
    assert found["Example"].strip()
    if "Args" in found and name not in REGISTERS:
        assert entries(found["Raises"])


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_an_error_says_what_it_is(name):
    assert vars(getattr(gt, name)).get("__doc__")


@pytest.mark.exhaustive
def test_examples_of_docstrings_run_beside_the_samples(tmp_path):
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    examples = {sections(name)["Example"]: name for name in NAMES}
    ran = subprocess.run(
        [sys.executable, "-c", RUN.format(examples=examples)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert not ran.returncode, ran.stderr
