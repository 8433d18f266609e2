"""docs/builder.md names every method of the builder and no other, and its examples run."""

import re
from pathlib import Path

import pytest

from gradtool.emit.builder import Builder
from gradtool.graph.composites import _COMPOSITES, composites
from gradtool.losses import kinds
from gradtool.ops.gradients import RULES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "builder.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"\bop\.([a-z]\w*)", PAGE))
METHODS = {name for name in dir(Builder) if not name.startswith("_")}
ATTRIBUTES = {"opset", "ste", "active", "results", "graph"}


def test_the_page_names_every_method_of_the_builder():
    assert not METHODS - NAMED


def test_the_page_names_nothing_that_the_builder_lacks():
    assert not NAMED - METHODS - ATTRIBUTES


@pytest.fixture
def untouched(monkeypatch):
    """Registries, filled already, that forget what the page registers."""
    composites()
    for registry in (RULES, _COMPOSITES):
        for name, held in vars(registry).items():
            if isinstance(held, dict):
                monkeypatch.setattr(registry, name, dict(held))
    for name, held in list(vars(kinds).items()):
        if isinstance(held, dict) and not name.startswith("__"):
            monkeypatch.setattr(kinds, name, dict(held))


@pytest.mark.usefixtures("untouched")
def test_the_examples_of_the_page_run(monkeypatch):
    monkeypatch.chdir(ROOT)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/builder.md", "exec"), names)  # noqa: S102
    op = names["op"]

    assert len(blocks) >= 8
    assert all(value.dtype is not None for node in op.emitted for value in node.outputs)
