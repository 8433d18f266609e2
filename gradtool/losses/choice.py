"""The default loss of a model: what the outputs of a model say of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UsageError
from gradtool.graph.constants import integers
from gradtool.graph.predicates import is_float, is_scalar
from gradtool.losses.kinds import NLL_OF_PROBABILITIES, Kind, kinds
from gradtool.losses.output_heads import LAYOUTS, PRODUCTS, ending
from gradtool.losses.settings import Settings
from gradtool.losses.terms import Term

_LOSSES = ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss", "BinaryCrossEntropy")
REGRESSION = "gradtool.regression"  # in `ir.Value.meta`: a regressor gave this value


@dataclass(frozen=True)
class Choice:
    """A term, or the output that is the loss itself; `why` is what people read behind its name.

    `others` are the floats among outputs that may have losses as well.
    """

    term: Term
    why: str = ""
    loud: bool = False
    others: tuple[str, ...] = ()


def choose(op: Builder) -> Choice:
    """The loss of the first output with a tell-tale end; else the mean of one.

    Raises:
        UsageError: no output is a float.
    """
    graph = op.graph
    floats = [v for v in graph.outputs if is_float(v)]
    if not floats:
        raise UsageError("no output is a float: name a loss with --loss")
    for value in floats:
        if is_scalar(value) and not _is_one_sample(value):
            known = _is_summed_up(value)
            if known or not len(value.shape or ()) or ending(value).linear:
                return Choice(_term(None, value, value), loud=not known)
    regressor = op.model.producer_name == "skl2onnx" and len(floats) == len(graph.outputs)
    deep = [v for v in floats if len(v.shape or ()) >= 2]
    for value in dict.fromkeys((*deep, *floats)):
        choice = _of(op, value, regressor=regressor)
        if choice is not None:
            among = f", one of {len(deep)}" if len(deep) > 1 else ""
            others = tuple(v.name or "" for v in floats if v is not value and _by_example(v, value))
            return Choice(choice.term, f"{among}{choice.why}", others=others)
    target = (deep or floats)[0]
    return Choice(_term(kinds()["mean"], target, target), loud=True)


def _by_example(value: ir.Value, other: ir.Value) -> bool:
    """Whether the leading axes of two outputs are of one size, as that of the examples is."""
    first, second = (list(v.shape or ())[:1] for v in (value, other))
    return bool(first) and first == second


def _term(kind: Kind | None, of: ir.Value, output: ir.Value, axis: int | None = None) -> Term:
    return Term(1.0, kind, of, output.name or "", "auto", Settings(axis))


def _is_one_sample(value: ir.Value) -> bool:
    """Whether one element is what a layer makes of a batch of one, and no loss."""
    if not len(value.shape or ()):
        return False
    found = ending(value)
    if found.activation:
        return True
    reads = found.node.inputs if found.node is not None else ()
    return any(_is_weight(v) for v in reads)


def _is_summed_up(value: ir.Value) -> bool:
    """Whether one element is a sum over samples, as a loss is, and no score of one sample.

    The name says so, an operator that is a loss, or a reduction over the first axis.
    """
    if "loss" in (value.name or "").lower():
        return True
    waiting: list[ir.Value] = [value]
    seen: set[ir.Node] = set()
    while waiting:
        node = waiting.pop().producer()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.op_type in _LOSSES or (node.op_type.startswith("Reduce") and _over_first(node)):
            return True
        waiting += [v for v in _reads(node) if is_scalar(v) or node.op_type == "Identity"]
    return False


def _over_first(node: ir.Node) -> bool:
    """Whether a reduction is over all axes, or the first among them."""
    named = node.inputs[1] if len(node.inputs) > 1 else None
    axes = list(node.attributes.get_ints("axes", [])) if named is None else integers(named)
    rank = len(node.inputs[0].shape or ()) if node.inputs[0] is not None else 0
    return not axes or any(axis % max(rank, 1) == 0 for axis in axes)


def _is_weight(value: ir.Value | None) -> bool:
    while value is not None and not value.is_initializer():
        node = value.producer()
        if node is None or node.op_type not in LAYOUTS:
            return False
        value = node.inputs[0]
    return value is not None


def _of(op: Builder, value: ir.Value, *, regressor: bool) -> Choice | None:
    """The loss that one output says it has."""
    found = ending(value)
    node = found.node
    mse = kinds()["mse"]
    if found.activation == "Sigmoid":
        return Choice(_term(kinds()["bce"], found.scores, value))
    if found.activation and node is not None and _is_over_classes(found.scores_axis, found.scores):
        if found.single:
            why = f", of one class, its {found.activation}, which is constant, left out"
            return Choice(_term(mse, found.scores, value), why)
        if found.activation == "Softmax":
            term = _term(kinds()["ce"], found.scores, value, found.scores_axis)
            return Choice(term, ", its Softmax left out")
        return Choice(_term(kinds()["nll"], node.outputs[0], value, found.scores_axis))
    if _is_single(value, single=found.single, linear=found.linear):
        return Choice(_term(mse, value, value), ", of one class")
    if regressor or value.meta.get(REGRESSION):
        return Choice(_term(mse, value, value), ", of a regressor")
    if found.linear:
        return Choice(_term(kinds()["ce"], value, value, found.axis))
    score = _complement(value)
    if score is not None:
        both, axis = _scores(op, value, score)
        return Choice(_term(kinds()["ce"], both, value, axis), ", its Sigmoid left out")
    if _is_classified(value):
        kind = kinds()["ce"] if _is_of_scores(value) else NLL_OF_PROBABILITIES
        return Choice(_term(kind, value, value))
    return None


def _is_over_classes(axis: int | None, scores: ir.Value) -> bool:
    """Whether an activation runs over another axis than that of the batch."""
    return axis is not None and (axis > 0 or len(scores.shape or ()) == 1)


_UNARY = ("Relu", "Tanh", "Exp", "Softplus", "Abs", "Clip", "LeakyRelu", "Elu", "Mul", "Div")


def _is_single(value: ir.Value, *, single: bool, linear: bool) -> bool:
    """Whether a layer gives one number in each place, perhaps through an activation."""
    if linear or not len(value.shape or ()):
        return single
    node = value.producer()
    while node is not None and node.op_type in (*LAYOUTS, *_UNARY):
        value, below = node.inputs[0] or value, ending(node.inputs[0] or value)
        if below.linear:
            return below.single
        node = value.producer()
    return False


_JOINING = ("Concat", "Div", "Normalizer")  # an event beside its complement, or shares of a sum


def _is_classified(value: ir.Value) -> bool:
    """Whether the model takes the largest of numbers that were made to go together."""
    node = value.producer()
    if node is None or node.op_type not in _JOINING or node.inputs[0] is None:
        return False
    uses = [*value.uses(), *node.inputs[0].uses()]
    return any(use.node.op_type == "ArgMax" for use in uses)


_OF_SCORES = (*LAYOUTS, "Concat", "Neg", "Mul", "Add")


def _is_of_scores(value: ir.Value) -> bool:
    """Whether numbers come from products alone, and are no probabilities."""
    waiting: list[ir.Value] = [value]
    seen: set[ir.Node] = set()
    while waiting:
        node = waiting.pop().producer()
        if node is None or node in seen or node.op_type in PRODUCTS:
            continue
        if node.op_type not in _OF_SCORES:
            return False
        seen.add(node)
        waiting += _reads(node)
    return True


def _reads(node: ir.Node) -> Iterable[ir.Value]:
    return [v for v in node.inputs if v is not None]


def _complement(value: ir.Value) -> ir.Value | None:
    """The s of the probabilities `[1 - σ(s), σ(s)]`, or None if a value is no such thing."""
    node = value.producer()
    if node is None or node.op_type != "Concat" or len(node.inputs) != 2:
        return None
    rest, p = node.inputs
    less = rest.producer() if rest is not None else None
    sigmoid = p.producer() if p is not None else None
    if less is None or sigmoid is None or sigmoid.op_type != "Sigmoid":
        return None
    if less.op_type != "Sub" or less.inputs[1] is not p or not _is_one(less.inputs[0]):
        return None
    return sigmoid.inputs[0]


def _is_one(value: ir.Value | None) -> bool:
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return tensor is not None and tensor.size == 1 and float(tensor.numpy().item()) == 1


def _scores(op: Builder, value: ir.Value, score: ir.Value) -> tuple[ir.Value, int]:
    """`[0, s]`, whose softmax the probabilities `value` are, and the axis of the classes."""
    node = value.producer()
    assert node is not None  # noqa: S101 - a value that has a score is a Concat
    axis = node.attributes.get_int("axis", 1) % len(value.shape or (1,))
    with op.at(None, stage="forward", source="", prefix="loss"):
        both: ir.Value = op.Concat(op.zeros_like(score), score, axis=axis)
    return both, axis
