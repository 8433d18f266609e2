"""Cross-entropy of a linear layer's scores as one node, which never has them whole.

    SoftmaxCrossEntropyLoss(scores, labels)
    NegativeLogLikelihoodLoss(LogSoftmax(scores), labels), and Σ w · LogSoftmax(scores)

Where anybody else reads the scores or their logarithms, and where there are so few that a block
holds all, it stays as it is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.constants import integers
from gradtool.graph.devices import place_like
from gradtool.graph.predicates import is_float
from gradtool.graph.typed import Tensor, as_tensor
from gradtool.operators import losses as limits
from gradtool.ops.loss.body import label_weights
from gradtool.passes._attention_operands import Operands, dims, readers
from gradtool.passes._written_heads import Head, adapter_of, bias_of, head_of, rows_of, scale_of
from gradtool.passes.training_forms import stand_in

# Scores that fit a block of the kernel and of the written file: fewer would be whole all the same.
SCORES = 1 << 20


def fuse_cross_entropy(op: Builder, kept: AbstractSet[ir.Value]) -> dict[ir.Value, ir.Value]:
    """Put one node in the place of every such layer and loss; by old value the new one.

    The values of `kept` are held by who calls: they stay.  Shapes must have been inferred.
    """
    look = Operands(op, kept)
    moved: dict[ir.Value, ir.Value] = {}
    for node in list(op.graph):
        found = _loss_at(look, node)
        anchor = None if found is None else _anchor(found)
        if found is None or anchor is None:
            continue
        if not kept.isdisjoint(v for each in found.nodes for v in each.outputs):
            continue
        start = len(op.emitted)
        with op.at(anchor, stage="forward", source="", prefix=node.name or ""), op.arithmetic():
            made = list(_fused(look, found))
        for inner in op.emitted[start:]:
            place_like(inner, node, {})
        for old, new in made:
            moved[old.outputs[0]] = new
            stand_in([new], old)
    return moved


@dataclass(frozen=True)
class _Loss:
    """A layer, the node that takes its scores to `loss`, and the sums over its log-softmax.

    `evens` are nodes of sums over all classes, each with its weights.
    """

    head: Head
    loss: ir.Node
    evens: tuple[tuple[ir.Node, ir.Value | None], ...] = ()

    @property
    def nodes(self) -> tuple[ir.Node, ...]:
        """The nodes that are replaced."""
        return (self.loss, *(node for node, _ in self.evens))


def _anchor(found: _Loss) -> ir.Node | None:
    """The first of the nodes that are replaced, if all operands are made before it."""
    order = {node: i for i, node in enumerate(found.loss.graph or ())}
    first = min(found.nodes, key=lambda node: order[node])
    operands = [*found.loss.inputs[1:], found.head.bias, *(w for _, w in found.evens)]
    makers = [v.producer() for v in operands if v is not None]
    return first if all(order.get(n, -1) < order[first] for n in makers if n) else None


def _loss_at(look: Operands, node: ir.Node) -> _Loss | None:
    """The loss whose scores meet their softmax in a node."""
    if node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type == "SoftmaxCrossEntropyLoss":
        shown = any(v.uses() or v.is_graph_output() for v in node.outputs[1:])
        head = None if shown else _head(look, node)
        return None if head is None else _Loss(head, node)
    if node.op_type != "LogSoftmax":
        return None
    logs, axis = node.outputs[0], node.attributes.get_int("axis", -1)
    rank = len(dims(logs))
    if rank != 2 or axis % rank != 1 or logs in look.kept or logs.is_graph_output():
        return None
    losses, evens = [], []
    for reader in readers(logs):
        even = _even(look, reader, logs)
        if reader.op_type == "NegativeLogLikelihoodLoss" and reader.inputs[0] is logs:
            losses.append(reader)
        elif even is not None:
            evens.append(even)
        else:
            return None
    head = _head(look, node) if len(losses) == 1 and len(evens) < 2 else None
    return None if head is None else _Loss(head, losses[0], tuple(evens))


def _head(look: Operands, node: ir.Node) -> Head | None:
    """The layer of the scores that a node reads, if they are many."""
    scores, reader = node.inputs[0], node
    if scores is None:
        return None
    rank = len(dims(scores))
    if rank > 2:  # classes were moved to the second axis
        turn = look.maker(scores, "Transpose")
        if turn is None or look.only_reader(scores) is not node:
            return None
        if list(turn.attributes["perm"].as_ints()) != [0, rank - 1, *range(1, rank - 1)]:
            return None
        scores, reader = turn.inputs[0], turn
    head = head_of(look, scores, reader)
    if head is None or not is_float(head.x) or head.classes < limits.MANY_CLASSES:
        return None
    cap = head.softcap
    exact = float(np.float32(cap)) == cap or head.x.dtype != ir.DataType.DOUBLE
    many = head.rows is None or head.rows * head.classes > SCORES
    return head if exact and many else None


def _even(look: Operands, node: ir.Node, logs: ir.Value) -> tuple[ir.Node, ir.Value | None] | None:
    """`Σ logs`, or `Σ w · logs` along the classes: the sum, and the weights."""
    weights = None
    if node.op_type == "Mul" and node.domain in ("", "ai.onnx"):
        a, b = node.inputs
        weights = b if a is logs else a
        total = look.only_reader(node.outputs[0])
        if total is None or weights is None or weights is logs:
            return None
        if dims(weights)[-1:] != dims(logs)[-1:] or any(s != 1 for s in dims(weights)[:-1]):
            return None
        if not _is_fixed(look, weights):
            return None
        node = total
    if node.op_type != "ReduceSum" or node.domain not in ("", "ai.onnx") or len(node.inputs) < 2:
        return None
    axes = integers(node.inputs[1])
    return (node, weights) if axes is not None and [a % 2 for a in axes] == [1] else None


def _is_fixed(look: Operands, value: ir.Value) -> bool:
    """Whether a value is a tensor of the model, in some layout, that has no gradient."""
    while node := look.maker(value, "Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"):
        if node.inputs[0] is None:
            return False
        value = node.inputs[0]
    return value.producer() is None and value not in look.kept


def _fused(look: Operands, found: _Loss) -> Iterator[tuple[ir.Node, Tensor]]:
    """One node for the layer and its losses; by node the value in its place."""
    op, node = look.op, found.loss
    x, scale, cap = scale_of(found.head, rows_of(look, found.head, found.head.x))
    labels = op.reshape(as_tensor(node.inputs[1]), [-1])
    said = node.attributes
    ignored = said.get_int("ignore_index") if "ignore_index" in said else None
    shares = [op.reshape(as_tensor(w), [found.head.classes]) for _, w in found.evens if w]
    matrix = [None if v is None else as_tensor(v) for v in found.head.matrix]
    adapter = adapter_of(look, found.head) or [None] * (2 * bool(matrix))
    loss, _, *spread = op.LinearCrossEntropy(
        x, labels, as_tensor(found.head.w), bias_of(look, found.head),
        *shares, *[None] * (not shares), *adapter, *matrix,
        outputs=3 if found.evens else 2, scale=scale if scale != 1 else None, softcap=cap or None,
        ignore_index=ignored, even=1 if found.evens else None, transB=int(found.head.turned),
        **found.head.coding,
    )  # fmt: skip
    yield node, _reduced(op, node, loss, labels, ignored)
    for (total, _), even in zip(found.evens, spread, strict=True):
        y = as_tensor(total.outputs[0])
        yield total, op.reshape(op.cast(-even, y.dtype), list(dims(y)))


def _reduced(
    op: Builder, node: ir.Node, rows: Tensor, labels: Tensor, ignored: int | None
) -> Tensor:
    """The losses of rows by the weight of their labels, and their sum or mean, as a node has it.

    An ignored label has no part in the gradient even where nothing counts and the mean is NaN.
    """
    weights = as_tensor(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    reduction = node.attributes.get_string("reduction", "mean")
    dtype, total = node.outputs[0].dtype or rows.dtype, None
    if weights is not None or ignored is not None:
        counted, w = label_weights(op, labels, weights, ignored, dtype)
        w = op.cast(w, rows.dtype)
        total = op.sum(w, [0])
        rows = rows if weights is None else rows * w
        if ignored is not None:
            rows = op.Where(counted, rows, op.constant(0.0, rows.dtype))
    if reduction == "none":
        return op.reshape(op.cast(rows, dtype), list(dims(node.outputs[0])))
    if reduction == "mean" and total is None:
        return op.cast(op.ReduceMean(rows, keepdims=0), dtype)
    added = op.sum(rows, [0])
    return op.cast(added if reduction == "sum" or total is None else added / total, dtype)
