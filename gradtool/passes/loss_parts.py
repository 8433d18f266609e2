"""A loss computed in parts of a batch, whose sum or mean is the batch's.

    L = Σ Nᵢ / Dᵢ        Nᵢ sums over examples, Dᵢ a function of sums over examples of data

Sums of data that a loss divides by, say, become inputs: they are fed with those of the whole batch,
which a model of their own computes ahead.  Then the loss is a sum over examples.  Where some of its
terms are means, or the same for any batch, these count by the share of the examples in a part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.prune import prune
from gradtool.graph.reads import needed
from gradtool.graph.training_info import add_defaults
from gradtool.graph.typed import Tensor, as_tensor
from gradtool.operators.losses import OF_CLASSES
from gradtool.ops.loss.body import label_weights
from gradtool.passes.batch_axis import BatchAxis
from gradtool.passes.batch_rules import is_counted
from gradtool.passes.batch_states import Batch, Kind, Mixed, Rows, Total
from gradtool.passes.training_forms import stand_in

ADDING = ("Add", "Sub", "Sum", "Mean", "Concat", "Where")


@dataclass(frozen=True)
class LossParts:
    """The loss of a batch as a function of those of its parts.

    It is their `sum`, or their `mean` by numbers of examples; None where it does not follow, and
    `why` says from which node on.  `ahead` are the inputs with sums of data over the whole batch,
    and how those of parts make these; `counts` computes them.  `share` is the input with the share
    of the batch's examples in a part.
    """

    kind: Kind | None
    why: str = ""
    ahead: Mapping[str, Kind] = field(default_factory=dict)
    counts: ir.Model | None = None
    share: str | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs fed beside data."""
        return (*self.ahead, *(() if self.share is None else (self.share,)))


def in_parts(
    op: Builder,
    loss: ir.Value,
    axes: Mapping[str, int | None],
    symbol: str | None,
    size: int | None,
    trained: Iterable[ir.Value],
) -> tuple[ir.Value, LossParts]:
    """Rewrite a forward graph, in place, whose loss is computed in parts; the loss, and how.

    Inputs have examples along `axes`, whose size is `symbol`, or `size` where it is fixed.  Losses
    that are a mean of the labels that count are written as a quotient of two sums.
    """
    graph = op.graph
    loss = _quotients(op, loss)
    batch = BatchAxis(graph, axes, symbol, size, trained)
    state = batch.of(loss)
    if isinstance(state, Mixed):
        return loss, LossParts(None, state.why)
    if isinstance(state, Rows):
        why = "" if batch.count == 1 else "the loss has an axis of examples"
        return loss, LossParts("mean" if batch.count == 1 else None, why)
    kind: Kind = state.kind if isinstance(state, Total) else "mean"
    read = needed(graph, [loss])
    chosen = {v: k for v, k in batch.ahead.items() if v in read}
    counts, ahead = (None, {}) if not chosen else _ahead(op, chosen)
    share = None
    if kind == "mixed":
        share, kind = _shared(op, batch, loss), "sum"
    return loss, LossParts(kind, "", ahead, counts, share)


# ------------------------------------------------------------------------ quotients of sums


def _quotients(op: Builder, loss: ir.Value) -> ir.Value:
    """Losses of weighted means, written as a sum over the total weight."""
    read = needed(op.graph, [loss])
    for node in list(op.graph):
        if node.op_type not in OF_CLASSES or node.outputs[0] not in read or not is_counted(node):
            continue
        if node.attributes.get_string("reduction", "mean") != "mean":
            continue
        was = node.outputs[0]
        how = {k: a.value for k, a in node.attributes.items()} | {"reduction": "sum"}
        with op.at(node, stage="forward", source="", prefix=f"{was.name}/parts"), op.arithmetic():
            made = op.emit(node.op_type, list(node.inputs), len(node.outputs), how)
            total, *rest = cast("tuple[Tensor, ...]", made if len(node.outputs) > 1 else (made,))
            new = total / _weight(op, node)
        stand_in((new, *rest), node)
        loss = new if loss is was else loss
    return loss


def _weight(op: Builder, node: ir.Node) -> Tensor:
    """The weight of all counting labels; 1 if there are none, and their loss is 0."""
    labels, weights = as_tensor(node.inputs[1]), node.inputs[2] if len(node.inputs) > 2 else None
    dtype = node.outputs[0].dtype or ir.DataType.FLOAT
    ignored = node.attributes.get_int("ignore_index") if "ignore_index" in node.attributes else None
    given = None if weights is None else as_tensor(weights)
    total = op.sum(label_weights(op, labels, given, ignored, dtype)[1], range(len(labels.shape)))
    return op.Where(op.Equal(total, op.constant(0.0, dtype)), op.constant(1.0, dtype), total)


# ------------------------------------------------------------------------------ known ahead


def _ahead(op: Builder, chosen: Mapping[ir.Value, Kind]) -> tuple[ir.Model, dict[str, Kind]]:
    """Make sums of data inputs; the model that computes them, and how parts make each."""
    names = {value: op.names.fresh(f"{value.name}_ahead") for value in chosen}
    counts = _counting(op.model, {v.name or "": name for v, name in names.items()})
    made: dict[str, Kind] = {}
    for value, kind in chosen.items():
        given = _input(op, names[value], value.shape, value.dtype)
        for use in list(value.uses()):
            use.node.replace_input_with(use.idx, given)
        made[names[value]] = kind
    return counts, made


def _counting(model: ir.Model, names: Mapping[str, str]) -> ir.Model:
    """A model of some values of another, under other names, from its inputs."""
    counts = model.clone()
    graph = counts.graph
    found = {v.name: v for node in graph for v in node.outputs if v.name in names}
    graph.outputs.clear()
    for name, value in found.items():
        value.name = names[name or ""]
        graph.outputs.append(value)
    counts.metadata_props.clear()
    prune(counts)
    read = [v for v in graph.inputs if v.uses()]
    graph.inputs.clear()
    graph.inputs.extend(read)
    return counts


def _input(op: Builder, name: str, shape: ir.Shape | None, dtype: ir.DataType | None) -> ir.Value:
    """A new input, by default 1 if its sizes are known."""
    made = ir.Value(name=name, shape=shape, type=ir.TensorType(dtype or ir.DataType.FLOAT))
    op.graph.inputs.append(made)
    if shape is not None and shape.is_static():
        add_defaults(op.model, {name: np.ones(shape.numpy()).tolist()})
    return made


# ---------------------------------------------------------------------------------- shares


def _shared(op: Builder, batch: Batch, loss: ir.Value) -> str:
    """Weigh terms other than sums over examples by the share of examples in a part."""
    share = _input(op, op.names.fresh("loss_share"), ir.Shape(()), loss.dtype)
    waiting, seen = [loss], {loss}
    while waiting:
        node = waiting.pop().producer()
        assert node is not None  # noqa: S101 - mixed values are computed
        for slot, value in enumerate(node.inputs):
            if value is None or (node.op_type == "Where" and slot == 0):
                continue
            if _is_mixed(batch, value):
                waiting += [value] * (value not in seen)
                seen.add(value)
            elif node.op_type in ADDING and not _is_sum(batch, value):
                with op.at(node, stage="forward", source="", prefix="loss/parts"):
                    node.replace_input_with(slot, op.Mul(value, op.Cast(share, to=value.dtype)))
    return share.name or ""


def _is_mixed(batch: Batch, value: ir.Value) -> bool:
    state = batch.of(value)
    return isinstance(state, Total) and state.kind == "mixed"


def _is_sum(batch: Batch, value: ir.Value) -> bool:
    state = batch.of(value)
    return isinstance(state, Total) and state.kind == "sum"
