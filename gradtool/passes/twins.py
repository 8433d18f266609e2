"""Equal sums of backward stay apart: a runtime that merges them runs one of them at the very end.

Two branches that begin at one gradient sum it alike, for their biases.  onnxruntime lets all read
the first of the sums; the second is then a result that nobody waits for, and what it sums is held.
"""

from __future__ import annotations

from collections.abc import Hashable

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.predicates import is_float, may_be_tensor
from gradtool.passes._waiting import (
    behind,
    bytes_of,
    depths_of,
    is_backward,
    is_large,
    may_wait,
)


def keep_twins_apart(model: ir.Model) -> None:
    """Let a small result of backward wait for an equal one before it."""
    op, depths = Builder(model), depths_of(model.graph)
    known: dict[Hashable, ir.Node] = {}
    for node in list(model.graph):
        key = _key(node) if is_backward(node) and may_wait(node) else None
        first = node if key is None else known.setdefault(key, node)
        (value, *_), result = node.inputs or (None,), first.outputs[0]
        if first is node or value is None or value not in depths or not is_large(value):
            continue
        node.replace_input_with(0, behind(op, node, value, [result]))


def _key(node: ir.Node) -> Hashable | None:
    """What nodes of equal results have in common; None of one whose result is no small tensor."""
    (made, *others) = node.outputs
    is_small = may_be_tensor(made) and is_float(made) and bytes_of(made) and not is_large(made)
    if (
        others
        or not is_small
        or any(a.type == ir.AttributeType.GRAPH for a in node.attributes.values())
    ):
        return None
    given = tuple(sorted((name, str(a.value)) for name, a in node.attributes.items()))
    return node.op_identifier(), tuple(node.inputs), given
