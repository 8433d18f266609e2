"""Rules of operators for values whose rows are examples, or that are sums over examples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import onnx_ir as ir

from gradtool.graph import constants
from gradtool.operators.equations import parse
from gradtool.ops.formulas import elementwise_operators
from gradtool.passes.batch_index import flat_index
from gradtool.passes.batch_states import (
    Batch,
    Fixed,
    Kind,
    Mixed,
    MixesError,
    Rows,
    Rule,
    Sized,
    State,
    Total,
)  # fmt: skip

TABLE: dict[str, Rule] = {}
COUNTED = "it is the mean of the labels that count"


def rule_for(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        TABLE.update(dict.fromkeys(names, rule))
        return rule

    return register


def rank_of(batch: Batch, value: ir.Value | None) -> int:
    if value is None or value.shape is None:
        raise MixesError("a shape is unknown")
    return len(value.shape)


def rows_of(state: State) -> Rows:
    if not isinstance(state, Rows):
        raise MixesError("it computes with a sum over examples" if isinstance(state, Total) else "")
    return state


def only_first(states: list[State]) -> Rows:
    """The rows of the first operand, all others being fixed."""
    if any(not isinstance(s, Fixed) for s in states[1:]):
        raise MixesError("an operand beside the first depends on examples")
    return rows_of(states[0])


LINEAR = ("Identity", "Neg", "Cast", "Add", "Sub", "Sum", "Mean", "Squeeze", "Unsqueeze", "Reshape",
          "Transpose", "Flatten", "Slice", "Expand", "CastLike", "Concat")  # fmt: skip


@rule_for(*elementwise_operators(), "AddGrad", "BinaryCrossEntropy", "DropoutGrad", "FakeQuantize")
def elementwise(batch: Batch, node: ir.Node, states: list[State]) -> State:
    """Rows of each operand beside those of the others."""
    if any(isinstance(s, Total) for s in states):
        return linear(batch, node, states)
    index = flat_index(batch, node, states)
    if index is not None:
        return index
    rank = rank_of(batch, node.outputs[0])
    return beside(batch, zip(node.inputs, states, strict=True), rank)


def beside(batch: Batch, operands: Iterable[tuple[ir.Value | None, State]], rank: int) -> Rows:
    """The rows of operands with shapes aligned on the right."""
    found: Rows | None = None
    for value, state in (operands := list(operands)):
        if not isinstance(state, Rows):
            continue
        if state.own:
            raise MixesError("it computes with the numbers of examples")
        here = replace(state, axis=state.axis + rank - rank_of(batch, value))
        if found is not None and here.axis != found.axis:
            raise MixesError("examples lie along different axes")
        if found is None or found.even:
            found = here
        elif not here.even and (here.outer, here.inner) != (found.outer, found.inner):
            raise MixesError("examples lie in different orders")
    if found is None:
        raise MixesError
    return found


def linear(batch: Batch, node: ir.Node, states: list[State]) -> State:
    """A linear function of sums over examples, beside values the same in every batch."""
    kinds = [s.kind for s in states if isinstance(s, Total)]
    if any(not isinstance(s, Total | Fixed) for s in states):
        raise MixesError("it computes with a sum over examples beside examples")
    op = node.op_type
    picks = op == "Where" and isinstance(states[0], Fixed)
    if picks or op in ("Add", "Sub", "Sum", "Mean", "Concat"):
        rest = [v for v, s in zip(node.inputs, states, strict=True) if isinstance(s, Fixed)]
        return Total(joined(kinds, beside=any(not _is_zero(v) for v in rest[picks:])))
    if op in ("Cast", "CastLike"):
        return _cast(node, states[0])
    if op in LINEAR and all(isinstance(s, Fixed) for s in states[1:]):
        return states[0]
    if op == "Mul" and len(kinds) == 1:
        return Total(kinds[0])
    if op == "Div" and isinstance(states[0], Total):
        if isinstance(states[1], Fixed):
            return _divided(batch, kinds[0], node.inputs[1])
        count = batch.of(node.inputs[1])
        if kinds[0] == "sum" and isinstance(count, Sized):
            return Total("mean")
    raise MixesError("it is not linear in a sum over examples")


def _divided(batch: Batch, kind: Kind, by: ir.Value | None) -> Total:
    """A sum by a number; it is a mean by that of the examples, where a model fixes it."""
    if batch.symbol is None and kind == "sum" and batch.count > 1:
        number = constants.array(by)
        if number is not None and number.size == 1 and number.item() % batch.count == 0:
            return Total("mean")
    return Total(kind)


def _cast(node: ir.Node, state: State) -> State:
    """The state of a cast: linear unless it rounds to integers or booleans."""
    value, to = node.inputs[0], node.outputs[0].dtype
    if value is None or to is None or value.dtype is None:
        raise MixesError
    if not to.is_floating_point() and to != value.dtype and not value.dtype.is_integer():
        raise MixesError("it rounds a sum over examples")
    return state


def joined(kinds: Iterable[Kind], *, beside: bool) -> Kind:
    """The kind of a sum of sums over examples, perhaps `beside` values the same in any batch."""
    found = set(kinds)
    if len(found) == 1 and not (beside and found == {"sum"}):
        return found.pop()
    return "mixed"


def _is_zero(value: ir.Value | None) -> bool:
    array = constants.array(value)
    return value is None or (array is not None and not array.any())


# ------------------------------------------------------------------------------- products


@rule_for("QuantizedMatMul")
def coded_product(batch: Batch, node: ir.Node, states: list[State]) -> State:
    """Rows by a matrix of few bits, the same in any batch."""
    state = states[0]
    if isinstance(state, Rows) and state.axis == rank_of(batch, node.inputs[0]) - 1:
        raise MixesError("it multiplies examples by each other")
    return state


@rule_for("MatMul", "Gemm", "MatMulInteger", "SummedMatMul")
def product(batch: Batch, node: ir.Node, states: list[State]) -> State:
    """Rows not multiplied by each other; a sum if they are contracted."""
    a, b = node.inputs[:2]
    ranks = rank_of(batch, a), rank_of(batch, b)
    if any(isinstance(s, Total) for s in states):
        if sum(not isinstance(s, Fixed) for s in states[:2]) == 1 and len(states) == 2:
            return next(s for s in states if isinstance(s, Total))
        raise MixesError("it multiplies sums over examples")
    turned = [bool(node.attributes.get_int(k, 0)) for k in ("transA", "transB")]
    inner = (ranks[0] - 2 if turned[0] else ranks[0] - 1, ranks[1] - 1 if turned[1] else
             max(ranks[1] - 2, 0))  # fmt: skip
    if _is_summed(states, inner):
        return Total("sum")
    rank = rank_of(batch, node.outputs[0])
    found = []
    for state, length, here in zip(states, ranks, (0, 1), strict=False):
        if isinstance(state, Rows):
            matrix = state.axis >= length - 2 and length > 1
            kept = rank - (1 if ranks[1] == 1 else 2) if here == 0 else rank - 1
            axis = kept if matrix else state.axis + rank - length
            found.append(replace(state, axis=axis))
    if len(found) == 2 and any(s.axis >= rank - 2 for s in found):
        raise MixesError("it multiplies examples by each other")
    if len(states) > 2 and isinstance(states[2], Rows):
        found.append(beside(batch, [(node.inputs[2], states[2])], rank))
    if len({(s.axis, s.outer, s.inner) for s in found}) != 1:
        raise MixesError("examples lie along different axes")
    return found[0]


def _is_summed(states: list[State], inner: tuple[int, int]) -> bool:
    """Whether a product contracts the axis of examples, common to both operands."""
    summed = [
        isinstance(s, Rows) and s.axis == axis for s, axis in zip(states[:2], inner, strict=True)
    ]
    if not any(summed):
        return False
    first, second = (rows_of(s) for s in states[:2])
    if not all(summed) or (first.outer, first.inner) != (second.outer, second.inner):
        raise MixesError("it sums over examples")
    if len(states) > 2:
        raise MixesError("it adds to a sum over examples")
    return True


@rule_for("Einsum")
def einsum(batch: Batch, node: ir.Node, states: list[State]) -> State:
    """Rows along one letter, kept or contracted to a sum."""
    terms, result = parse(node.attributes.get_string("equation", ""), [
        rank_of(batch, v) for v in node.inputs])  # fmt: skip
    letters = {term[rows_of(s).axis] for term, s in zip(terms, states, strict=True)
               if not isinstance(s, Fixed)}  # fmt: skip
    splits = {(rows_of(s).outer, rows_of(s).inner) for s in states if not isinstance(s, Fixed)}
    (letter,) = letters if len(letters) == 1 else (None,)
    if letter is None or len(splits) != 1:
        raise MixesError("it multiplies examples by each other")
    if any(letter in term and isinstance(s, Fixed) for term, s in zip(terms, states, strict=True)):
        raise MixesError("an operand tells examples apart")
    if letter not in result:
        return Total("sum")
    return Rows(result.index(letter), *splits.pop())


@rule_for(
    "Conv", "ConvTranspose", "ConvInteger", "DeformConv", "MaxPool", "MaxPoolTraining",
    "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool",
    "BatchNormalization", "BatchNormalizationTraining", "InstanceNormalization",
    "GroupNormalization", "LRN", "DepthToSpace", "SpaceToDepth", "Sample", "GridSample", "Col2Im",
    "RotaryEmbedding", "STFT", "AffineGrid", "MaxUnpool",
)  # fmt: skip
def along_the_first(batch: Batch, node: ir.Node, states: list[State]) -> State | list[State]:
    """Rows along the first axis of the operand; statistics of a batch are its own."""
    moving = [s for s in states if not isinstance(s, Fixed)]
    if any(rows_of(s).axis != 0 for s in moving) or len({(s.outer, s.inner) for s in moving}) != 1:  # type: ignore[union-attr]
        raise MixesError("it has examples along another axis than the first")
    weighed = node.op_type.startswith("Conv") or "Normalization" in node.op_type
    if weighed and len(moving) > 1:
        raise MixesError("its weights depend on examples")
    made = states[0] if isinstance(states[0], Rows) else moving[0]
    if node.op_type.startswith("BatchNormalization"):
        return [made, *[Mixed("statistics of a batch")] * (len(node.outputs) - 1)]
    return made


@rule_for("Attention", "ScaledAttention", "FusedAttention", "LinearAttention")
def attention(batch: Batch, node: ir.Node, states: list[State]) -> list[State]:
    """Rows along the first axis; a mask may be one for all, or have them, too."""
    for value, state in zip(node.inputs, states, strict=True):
        if isinstance(state, Fixed):
            continue
        rank = rank_of(batch, value)
        if rows_of(state).axis != 0 or (value not in node.inputs[:3] and rank < 3):
            raise MixesError("it has examples along another axis than the first")
    return [rows_of(states[0])] * len(node.outputs)


# --------------------------------------------------------------------------- along an axis


def _axis_of(node: ir.Node, rank: int, default: int) -> int:
    return node.attributes.get_int("axis", default) % max(rank, 1)


@rule_for("Softmax", "LogSoftmax", "Hardmax", "LpNormalization", "ArgMax", "ArgMin", "TopK",
          "CumSum", "CumProd")  # fmt: skip
def along_one(batch: Batch, node: ir.Node, states: list[State]) -> State:
    """Rows along another axis than the operator's."""
    state, rank = only_first(states), rank_of(batch, node.inputs[0])
    default = 0 if node.op_type.startswith("Arg") else -1
    axis = _axis_of(node, rank, default)
    if node.op_type.startswith("Cum"):
        given = batch.constant(node, 1)
        axis = state.axis if given is None else int(given.item()) % rank
    if axis == state.axis:
        raise MixesError("it computes along the axis of examples")
    if node.op_type.startswith("Arg") and not node.attributes.get_int("keepdims", 1):
        return replace(state, axis=state.axis - (axis < state.axis))
    return state


@rule_for("LayerNormalization", "RMSNormalization")
def from_an_axis_on(batch: Batch, node: ir.Node, states: list[State]) -> State:
    """Rows along an axis before the operator's axes."""
    state, rank = only_first(states), rank_of(batch, node.inputs[0])
    if state.axis >= _axis_of(node, rank, -1):
        raise MixesError("it computes along the axis of examples")
    return state


@rule_for("MeanVarianceNormalization")
def along_some(batch: Batch, node: ir.Node, states: list[State]) -> State:
    """Rows along another axis than the operator's axes."""
    state = only_first(states)
    if state.axis in node.attributes.get_ints("axes", [0, 2, 3]):
        raise MixesError("it computes along the axis of examples")
    return state


_ADDS = {"ReduceSum": "sum", "ReduceMean": "mean", "ReduceL1": "sum", "ReduceSumSquare": "sum"}


@rule_for("ReduceSum", "ReduceMean", "ReduceL1", "ReduceSumSquare", "ReduceMax", "ReduceMin",
      "ReduceProd", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp")  # fmt: skip
def reduction(batch: Batch, node: ir.Node, states: list[State]) -> State:
    """A sum over examples, if it adds along their axis; else their rows."""
    rank, op = rank_of(batch, node.inputs[0]), node.op_type
    if isinstance(states[0], Total):
        if op not in ("ReduceSum", "ReduceMean"):
            raise MixesError("it is not linear in a sum over examples")
        return states[0]
    state = rows_of(states[0])
    given = batch.constant(node, 1)
    axes = list(node.attributes.get_ints("axes", [])) if given is None else given.tolist()
    absent = len(node.inputs) < 2 or node.inputs[1] is None
    if given is None and not absent:
        raise MixesError("its axes are not known")
    noop = bool(node.attributes.get_int("noop_with_empty_axes", 0))
    axes = [a % rank for a in axes] or ([] if noop else list(range(rank)))
    if state.axis in axes:
        if op not in _ADDS or state.own:
            raise MixesError("it takes examples together, and not by their sum")
        return Total(_ADDS[op])  # type: ignore[arg-type]
    if node.attributes.get_int("keepdims", 1):
        return state
    return replace(state, axis=state.axis - sum(a < state.axis for a in axes))


@rule_for("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
def class_loss(batch: Batch, node: ir.Node, states: list[State]) -> list[State]:
    """A row's own loss, or their sum or mean; the mean of all if none is ignored or weighed."""
    scores, labels = rows_of(states[0]), rows_of(states[1])
    at = scores.axis - (scores.axis > 1)
    weighs = any(not isinstance(s, Fixed) for s in states[2:])
    splits = {(rows.outer, rows.inner) for rows in (scores, labels)}
    if scores.axis == 1 or labels.axis != at or weighs or len(splits) > 1:
        raise MixesError("examples lie along the axis of classes")
    how = node.attributes.get_string("reduction", "mean")
    if how == "mean" and is_counted(node):
        raise MixesError(COUNTED)
    loss: State = labels if how == "none" else Total("sum" if how == "sum" else "mean")
    return [loss, scores][: len(node.outputs)]


def is_counted(node: ir.Node) -> bool:
    """Whether a loss is a weighted mean: some labels do not count, or by their weight."""
    weighed = len(node.inputs) > 2 and node.inputs[2] is not None
    return weighed or "ignore_index" in node.attributes
