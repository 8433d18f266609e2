"""Gradient rules: one per operator, registered by name, one file per operator family.

A rule is `(op, node, *dys) -> one gradient per formal input`: it gets the builder, the forward
node and the gradient of each output (None where no gradient arrives), and returns None for an
input that is absent or not differentiable.  It emits standard operators and composites through
`op`, and nothing else.  What it reads of the forward pass is what will be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from gradtool import plugins
from gradtool.families import full_name, load_families, split_name

Rule = Callable[..., Any]


@dataclass(frozen=True)
class Gradient:
    """A registered rule.

    `broadcasts`: the driver sums each gradient down to its input's shape.  `zero`: the derivative
    is zero by definition (rounding, comparison, integers), so no gradient flows on.
    """

    domain: str
    op: str
    since: int
    rule: Rule
    broadcasts: bool = False
    zero: bool = False

    @property
    def name(self) -> str:
        """`Op`, or `domain::Op` outside the standard domain."""
        return full_name(self.domain, self.op)


_REGISTRY: dict[tuple[str, str], list[Gradient]] = {}


def gradient(name: str, *, since: int = 1, broadcasts: bool = False) -> Callable[[Rule], Rule]:
    """Register the decorated function as the rule of operator `name` from opset `since` on."""

    def register(rule: Rule) -> Rule:
        _add(Gradient(*split_name(name), since, rule, broadcasts))
        return rule

    return register


def zero_gradient(*names: str) -> None:
    """Register operators whose derivative is zero by definition."""
    for name in names:
        _add(Gradient(*split_name(name), 1, _no_gradient, zero=True))


def _no_gradient(op: Any, node: Any, *dys: Any) -> Sequence[None]:
    return (None,) * len(node.inputs)


def _add(entry: Gradient) -> None:
    versions = _REGISTRY.setdefault((entry.domain, entry.op), [])
    versions.append(entry)
    versions.sort(key=lambda e: e.since)


@cache
def _loaded() -> dict[tuple[str, str], list[Gradient]]:
    load_families(__name__)
    plugins.load_plugins(plugins.RULES, _REGISTRY)
    return _REGISTRY


def find(domain: str, op: str, version: int) -> Gradient | None:
    """The rule of an operator at an opset version, or None. The newest that is old enough wins."""
    domain = "" if domain == "ai.onnx" else domain
    for entry in reversed(_loaded().get((domain, op), ())):
        if entry.since <= version:
            return entry
    return None


def rules() -> list[Gradient]:
    """Every registered rule, by name."""
    return [e for _, entries in sorted(_loaded().items()) for e in entries]
