"""Gradient rules: one per operator, registered by name, one file per operator family.

A rule is `(op, node, *dys) -> one gradient per formal input`: it gets the builder, the forward
node and the gradient of each output (None where no gradient arrives), and returns None for an
input that is absent or not differentiable.  It emits standard operators and composites through
`op`, and nothing else.  Its reads of the forward pass are the residuals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Concatenate, Literal, TypeVar

import onnx_ir as ir

from gradtool import plugins
from gradtool.emit.builder import Builder
from gradtool.graph.attributes import arguments
from gradtool.graph.composites import B, composite
from gradtool.graph.families import full_name, split_name
from gradtool.graph.registry import Registry
from gradtool.graph.typed import Node, Tensor
from gradtool.ops.shared.tiling import by_piece

Gradients = ir.Value | Sequence[ir.Value | None] | None  # one per input; a single one by itself
Rule = Callable[Concatenate[Builder, Node, ...], Gradients]
R = TypeVar("R", bound=Rule)


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


RULES = Registry[Gradient]("gradients", "gradient", function="rule", group=plugins.RULES)


def gradient(name: str, *, since: int = 1, broadcasts: bool = False) -> Callable[[R], R]:
    """Register the decorated function as the rule of operator `name` from opset `since` on.

    `rule(op, node, *dys)` gets the gradients of the outputs and returns one gradient per input.

    Args:
        name: `Op`, or `domain::Op` outside the standard domain.
        since: the first opset version that the rule is for.
        broadcasts: inputs are broadcast: their gradients are summed to their shapes.

    Example:
        @gt.gradient("com.acme::Twice")
        def twice(op, node, dy):
            return dy * 2.0
    """

    def register(rule: R) -> R:
        RULES.add(Gradient(*split_name(name), since, rule, broadcasts))
        return rule

    return register


def derivative(
    name: str, *, of: Literal["x", "y"], in_pieces: bool = False, **options: float | str
) -> Callable[[B], B]:
    """Register the decorated body as the composite `NameGrad`, and a call of it as the rule.

    The body is `(op, x, dy, **options)`, or with `of="y"` reads the operator's result instead;
    `options` are attributes of the operator, with their defaults. An elementwise one may be written
    `in_pieces`, where a builder asks for them.
    """

    def register(body: B) -> B:
        composite(f"{name}Grad")(by_piece(body) if in_pieces else body)

        def rule(op: Builder, node: Node, dy: Tensor) -> Tensor:
            read = node.inputs[0] if of == "x" else node.outputs[0]
            given = {k: v for k, v in arguments(node).items() if k in options}
            made: Tensor = getattr(op, f"{name}Grad")(read, dy, **(options | given))
            return made

        rule.__doc__ = body.__doc__
        gradient(name)(rule)
        return body

    return register


def zero_gradient(*names: str) -> None:
    """Register operators whose derivative is zero by definition."""
    for name in names:
        RULES.add(Gradient(*split_name(name), 1, _no_gradient, zero=True))


def _no_gradient(op: Builder, node: Node, *dys: Tensor | None) -> Gradients:
    return (None,) * len(node.inputs)


def find(domain: str, op: str, version: int) -> Gradient | None:
    """The rule of an operator at an opset version, or None. The newest old enough wins."""
    return RULES.find(domain, op, version)


def rules() -> list[Gradient]:
    """Every registered rule, by name."""
    return RULES.entries()
