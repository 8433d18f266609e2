"""Gradients that read a forward value only to choose: the choice can be kept instead.

Such a gradient is one composite.  Its body first makes a truth value (or an index) per element of
the forward value, then applies that to the gradient.  Opened, the first half may be hoisted: a byte
crosses to backward in place of a float.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph import walk
from gradtool.graph.attributes import arguments
from gradtool.graph.composites import DOMAIN, named
from gradtool.graph.metadata import SOURCE
from gradtool.graph.prune import drop, succeed
from gradtool.graph.typed import Tensor
from gradtool.passes.residuals import Sizes


@dataclass(frozen=True)
class Choice:
    """The criterion by which a composite chooses.

    The inputs `reads` serve nothing but the choice, which takes `bytes` per element of input `of`
    (of the result if None).  `body` replaces the composite, its own if None; either has the bits of
    the composite's kernel.
    """

    reads: tuple[int, ...]
    bytes: int = 1
    of: int | None = None
    body: Callable[..., Tensor] | None = None


def _abs_grad(op: Builder, x: Tensor, dy: Tensor) -> Tensor:
    """`dx = dy · sign(x)`; the sign, NaN among its values, is exact in half precision."""
    sign = op.Cast(op.Sign(x), to=ir.DataType.FLOAT16)
    return op.Mul(dy, op.cast(sign, x.dtype))


def _scaled(op: Builder, dy: Tensor, alpha: float) -> Tensor:
    """`α dy`, rounded once: α has no exact value in half precision."""
    wide = op.cast(dy, ir.DataType.FLOAT) if dy.dtype.bitwidth < 32 else dy
    return op.cast(wide * alpha, dy.dtype)


def _relu_grad(op: Builder, y: Tensor, dy: Tensor) -> Tensor:
    """`dx = dy`, and 0 for y = 0, a comparison that needs no constant as a truth value."""
    producer = y.producer()
    if producer is not None and producer.op_type == "Relu" and not producer.domain:
        positive = op.Cast(y, to=ir.DataType.BOOL)  # NaN is true
    else:
        positive = op.Not(op.LessOrEqual(y, 0.0))
    return op.MaskGrad(positive, dy)


def _clip_grad(
    op: Builder, x: Tensor, low: Tensor | None, high: Tensor | None, dy: Tensor
) -> Tensor:
    """`dx = dy`, and 0 for x below `low` or above `high`; NaN is within."""
    beyond = [op.Less(x, low)] if low is not None else []
    beyond += [op.Greater(x, high)] if high is not None else []
    return op.MaskGrad(op.Not(functools.reduce(op.Or, beyond)), dy)


def _leaky_relu_grad(op: Builder, x: Tensor, dy: Tensor, *, alpha: float) -> Tensor:
    """`dx = dy`, and `α dy` unless x is positive."""
    return op.Where(op.LessOrEqual(x, 0.0), _scaled(op, dy, alpha), dy)


def _hard_sigmoid_grad(op: Builder, y: Tensor, dy: Tensor, *, alpha: float) -> Tensor:
    """`dx = α dy` for `0 < y < 1`, else 0."""
    outside = op.Or(op.LessOrEqual(y, 0.0), op.GreaterOrEqual(y, 1.0))
    return op.Where(outside, 0.0, _scaled(op, dy, alpha))


def _max_grad(op: Builder, x: Tensor, other: Tensor, dy: Tensor) -> Tensor:
    """`dx = dy` for the larger x (or NaN), half of it for equal ones, else 0."""
    return _extreme_grad(op, op.Greater(x, other), x, other, dy)


def _min_grad(op: Builder, x: Tensor, other: Tensor, dy: Tensor) -> Tensor:
    """`dx = dy` for the smaller x (or NaN), half of it for equal ones, else 0."""
    return _extreme_grad(op, op.Less(x, other), x, other, dy)


def _extreme_grad(op: Builder, wins: Tensor, x: Tensor, other: Tensor, dy: Tensor) -> Tensor:
    """A sum, as in the kernel: of two zeros it is the positive one."""
    alone = op.Where(op.Or(wins, op.IsNaN(x)), dy, 0.0)
    return op.Add(alone, op.Where(op.Equal(x, other), dy, 0.0) * 0.5)


CHOICES: Mapping[str, Choice] = MappingProxyType(
    {
        "AbsGrad": Choice((0,), bytes=2, body=_abs_grad),
        "ClipGrad": Choice((0, 1, 2), body=_clip_grad),
        "GlobalMaxPoolGrad": Choice((0,), bytes=8, of=1),
        "HardSigmoidGrad": Choice((0,), body=_hard_sigmoid_grad),
        "LeakyReluGrad": Choice((0,), body=_leaky_relu_grad),
        "MaxGrad": Choice((0, 1), bytes=2, body=_max_grad),
        "MinGrad": Choice((0, 1), bytes=2, body=_min_grad),
        "PReluGrad": Choice((0,)),
        "ReduceExtremeGrad": Choice((0, 1)),
        "ReluGrad": Choice((0,), body=_relu_grad),
    }
)


def choice_of(node: ir.Node) -> Choice | None:
    """The choice of a node, if it chooses."""
    return CHOICES.get(node.op_type) if node.domain == DOMAIN else None


def choice_reads(node: ir.Node, choice: Choice) -> tuple[list[ir.Value], list[ir.Value]]:
    """The inputs for the choice alone, and the others."""
    given = [(slot, v) for slot, v in enumerate(node.inputs) if v is not None]
    return (
        [v for slot, v in given if slot in choice.reads],
        [v for slot, v in given if slot not in choice.reads],
    )


def choice_bytes(node: ir.Node, choice: Choice, sizes: Sizes) -> int | None:
    """Bytes of a node's choice; None if a rank is unknown."""
    like = node.outputs[0] if choice.of is None else node.inputs[choice.of]
    elements = None if like is None else sizes.elements(like)
    return None if elements is None else elements * choice.bytes


def open_choices(
    model: ir.Model, nodes: Iterable[ir.Node]
) -> tuple[dict[ir.Node, str], dict[ir.Value, ir.Value]]:
    """Replace composites by bodies in standard operators.

    Returns, by node of a body, the name of the composite that it was, and by result of a composite
    the value that has its name and its readers now.
    """
    made: dict[ir.Node, str] = {}
    results: dict[ir.Value, ir.Value] = {}
    opened = list(nodes)
    if not opened:
        return made, results
    op = Builder(model)
    for node in opened:
        start = len(op.emitted)
        results[node.outputs[0]] = _replace(op, node)
        made |= dict.fromkeys(op.emitted[start:], node.name or "")
    drop(opened)
    if not any(n.domain == DOMAIN for n in walk.nodes(model.graph)):
        model.graph.opset_imports.pop(DOMAIN, None)
    return made, results


def _replace(op: Builder, node: ir.Node) -> ir.Value:
    choice, (old,) = CHOICES[node.op_type], node.outputs
    body: Callable[..., Any] = choice.body or named(node.op_type).body
    source = node.metadata_props.get(SOURCE, "")
    op.near = tuple(v for v in node.inputs if v is not None)
    with op.at(node, stage="backward", source=source, prefix=node.name or ""), op.arithmetic():
        new: ir.Value = body(op, *node.inputs, **arguments(node))
    op.near = ()
    new.type = old.type
    new.shape = old.shape if old.shape is not None else new.shape
    succeed(new, old)
    return new
