"""Losses by name: the formula that `--loss KIND` appends to an output.

A loss is `f(op, y)` or `f(op, y, labels)`: it gets the builder and values of the graph, emits
standard operators through `op`, and returns a value of one element.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, Literal

from gradtool import plugins
from gradtool.ops.loss.body import label_weights

LEAST = 1e-30  # a probability whose reciprocal float32 holds
Formula = Callable[..., Any]
Labels = Literal["classes", "like"]


@dataclass(frozen=True)
class Kind:
    """A loss: what people read of it, the labels that it takes, and its formula.

    `classes`: an integer for every place but along the axis of classes.  `like`: numbers in the
    shape and type of the output.  A formula whose labels are `declared` by parameter takes values
    by their names, one of several `outputs` takes those in the order in which they are named.
    """

    name: str
    said: str
    labels: Labels | None
    formula: Formula
    declared: Mapping[str, str] = field(default_factory=dict)
    outputs: int = 1

    @property
    def numbers(self) -> dict[str, float]:
        """The numeric settings of the formula, with their defaults."""
        takes = plugins.parameters_of(self.formula)
        found = {name: each.default for name, each in takes.items() if each.kind is _NAMED}
        return {n: float(d) for n, d in found.items() if type(d) is float and n != "smoothing"}

    @property
    def is_own(self) -> bool:
        """Whether the formula is gradtool's, and none of the user's or of a plug-in."""
        return (getattr(self.formula, "__module__", None) or "").startswith("gradtool.")

    @property
    def takes_axis(self) -> bool:
        """Whether the formula is told the axis of classes; else it finds them on the last axis."""
        return "axis" in inspect.signature(self.formula).parameters


_REGISTRY: dict[str, list[Kind]] = {}


_NAMED = inspect.Parameter.KEYWORD_ONLY


def loss(
    name: str, *, labels: Labels | Mapping[str, str] | None = None, said: str = "", outputs: int = 1
) -> Callable[[Formula], Formula]:
    """Register the decorated function as the loss `name`.

    `formula(op, y)` or `formula(op, y, labels)` emits standard operators and returns one number.
    Parameters that are called as outputs and inputs of the model get these.  A number that is named
    behind `*`, as in `*, beta=0.5`, is a setting: `--loss name@beta=0.1`.

    Args:
        name: what `gradtool.grad(loss=…)` calls it.
        labels: `classes` (integers, without the axis of classes), `like` (the shape and type of the
            output), or None: it takes none; or by parameter `classes:OUTPUT`, `like:OUTPUT` or a
            type and sizes, as in `int64[N, 4]`.
        said: what people read of it; by default the name.
        outputs: how many the formula takes, which are named as in `--loss name:a,b`.

    Example:
        @gt.loss("energy", said="mean square of the output")
        def energy(op, y):
            return op.ReduceMean(y * y, keepdims=0)
    """
    own, declared = (None, labels) if isinstance(labels, Mapping) else (labels, {})

    def register(formula: Formula) -> Formula:
        _REGISTRY[name] = [Kind(name, said or name, own, formula, declared, outputs)]
        return formula

    return register


@cache
def kinds() -> dict[str, Kind]:
    """Every loss by name: our own, then those of plug-ins, which cannot take a name of ours."""
    import_module("gradtool.losses.regions")
    own = dict(_REGISTRY)
    plugins.load_plugins(plugins.LOSSES, _REGISTRY, _take)
    return {name: versions[0] for name, versions in (_REGISTRY | own).items()}


def _take(name: str, formula: Formula) -> None:
    if not callable(formula):
        raise TypeError(f"{formula!r} is no function")
    _REGISTRY.setdefault(name, [kind_of(formula, name)])


def kind_of(formula: Formula, name: str = "") -> Kind:
    """A function as a loss: as it was registered, else with labels if it takes a third argument."""
    for (kind,) in _REGISTRY.values():
        if kind.formula is formula:
            return kind
    name = name or getattr(formula, "__name__", "loss")
    takes = [p for p in plugins.parameters_of(formula).values() if p.kind is not _NAMED]
    return Kind(name, name, "like" if len(takes) > 2 else None, formula)


# ---------------------------------------------------------------------------- formulas


@loss("ce", labels="classes", said="softmax cross-entropy")
def cross_entropy(
    op: Any, scores: Any, labels: Any, axis: int = -1, *, ignore: int | None = None,
    smoothing: float = 0.0, weight: Any = None, soft: bool = False, counts: Any = None,
) -> Any:  # fmt: skip
    """`Σ w[label] · (-log softmax(scores)[label]) / Σ w[label]`, the classes along `axis`.

    The sums leave out labels of `ignore`, or below 0 where that is None.  With `smoothing` s a
    label is its class to 1 - s, and all C classes to s/C each; `soft` labels are probabilities.

    Source: PyTorch's `cross_entropy`, whose `reduction="mean"` is by weight for class indices and
    by example for probabilities.
    """
    if soft:
        return _of_shares(op, scores, labels, axis, smoothing, weight, counts)
    scores, labels, counts = by_class(op, scores, labels, axis, counts)
    labels, ignored = told_apart(op, labels, ignore)
    how = {"ignore_index": ignored}
    if not smoothing and counts is None:
        return op.SoftmaxCrossEntropyLoss(scores, labels, weight, reduction="mean", **how)
    logs = op.LogSoftmax(scores, axis=1)
    hard = op.NegativeLogLikelihoodLoss(logs, labels, weight, reduction="none", **how)
    counted, w = label_weights(op, labels, weight, ignored, scores.dtype)
    rows = hard
    if smoothing:
        even = -op.sum(_weighed(op, logs, weight, 1), [1])
        rows = hard * (1 - smoothing) + op.Where(counted, even, 0.0) * (smoothing / scores.shape[1])
    if counts is not None:
        rows, w = rows * counts, w * counts
    return total(op, rows) / total(op, w)


def _of_shares(
    op: Any, scores: Any, shares: Any, axis: int, smoothing: float, weight: Any, counts: Any
) -> Any:
    """`mean(-Σ w · shares · log softmax(scores))`, summed along `axis`."""
    axis %= len(scores.shape)
    if smoothing:
        shares = shares * (1 - smoothing) + smoothing / scores.shape[axis]
    logs = op.LogSoftmax(scores, axis=axis)
    return mean_of(op, -op.sum(_weighed(op, logs, weight, axis) * shares, [axis]), counts)


def _weighed(op: Any, logs: Any, weight: Any, axis: int) -> Any:
    """Values times the weights of their classes, which lie along `axis`."""
    if weight is None:
        return logs
    return logs * op.unsqueeze(weight, [i + 1 for i in range(len(logs.shape) - axis - 1)])


def told_apart(op: Any, labels: Any, ignore: int | None) -> tuple[Any, int]:
    """Class labels, and the ignored one: all below 0, as one, where nobody says which."""
    if ignore is None:
        return op.Max(labels, op.constant(-1, labels.dtype)), -1
    return labels, ignore


@loss("mse", labels="like", said="mean squared error")
def mse(op: Any, y: Any, t: Any, *, counts: Any = None) -> Any:
    """`mean((y - t)²)`."""
    error = y - t
    return mean_of(op, error * error, counts)


@loss("l1", labels="like", said="mean absolute error")
def l1(op: Any, y: Any, t: Any, *, counts: Any = None) -> Any:
    """`mean(|y - t|)`."""
    return mean_of(op, op.Abs(y - t), counts)


@loss("smooth-l1", labels="like", said="smooth L1 (beta 1)")
def smooth_l1(op: Any, y: Any, t: Any, *, counts: Any = None) -> Any:
    """`mean(e²/2 where |e| < 1, |e| - 1/2 elsewhere)` `= mean(c · (e - c/2))`.

    e is `y - t`, and c is e clipped to [-1, 1].
    """
    error = y - t
    clipped = op.Clip(error, -1.0, 1.0)
    return mean_of(op, clipped * (error - clipped * 0.5), counts)


@loss("huber", labels="like", said="Huber (delta 1)")
def huber(op: Any, y: Any, t: Any, *, counts: Any = None) -> Any:
    """The same as `smooth-l1`: they differ by a factor where delta is not 1."""
    return smooth_l1(op, y, t, counts=counts)


@loss("bce", labels="like", said="binary cross-entropy of probabilities")
def bce(op: Any, p: Any, t: Any, *, counts: Any = None) -> Any:
    """`mean(-t · log p - (1 - t) · log(1 - p))`, each logarithm at least -100."""
    return mean_of(op, op.BinaryCrossEntropy(p, t), counts)


@loss("bce-logits", labels="like", said="binary cross-entropy of logits")
def bce_logits(
    op: Any, y: Any, t: Any, *, ignore: int | None = None, smoothing: float = 0.0,
    weight: Any = None, counts: Any = None,
) -> Any:  # fmt: skip
    """`mean(w · (-t · log σ(y) - (1 - t) · log(1 - σ(y))))` `= mean(w · (softplus(y) - y · t))`.

    The mean is over labels but those of `ignore`.  With `smoothing` s a label is `t (1 - s) + s/2`;
    `weight` is by column, along the last axis.
    """
    share = t * (1 - smoothing) + smoothing / 2 if smoothing else t
    rows = op.Softplus(y) - y * share
    if weight is not None:
        rows = rows * weight
    if ignore is None:
        return mean_of(op, rows, counts)
    counted = op.Not(op.Equal(t, op.constant(float(ignore), t.dtype)))
    if counts is not None:
        return mean_of(op, rows, op.Where(counted, counts, 0.0))
    return total(op, op.Where(counted, rows, 0.0)) / counts_of(op, counted, rows.dtype)


def mean_of(op: Any, rows: Any, counts: Any) -> Any:
    """The mean of all elements, or `Σ counts · rows / Σ counts` with how much each counts."""
    return mean(op, rows) if counts is None else total(op, rows * counts) / total(op, counts)


def counts_of(op: Any, counted: Any, dtype: Any) -> Any:
    """How many labels count, at least one."""
    return op.Max(total(op, op.Cast(counted, to=dtype)), 1.0)


@loss("nll", labels="classes", said="negative log-likelihood")
def nll(
    op: Any, scores: Any, labels: Any, axis: int = -1, *, ignore: int | None = None,
    weight: Any = None, counts: Any = None,
) -> Any:  # fmt: skip
    """`Σ w[label] · (-scores[label]) / Σ w[label]`; scores are log-probabilities, see `ce`."""
    scores, labels, counts = by_class(op, scores, labels, axis, counts)
    labels, ignored = told_apart(op, labels, ignore)
    if counts is not None:
        how = {"reduction": "none", "ignore_index": ignored}
        rows = op.NegativeLogLikelihoodLoss(scores, labels, weight, **how)
        _, w = label_weights(op, labels, weight, ignored, scores.dtype)
        return total(op, rows * counts) / total(op, w * counts)
    return op.NegativeLogLikelihoodLoss(
        scores, labels, weight, reduction="mean", ignore_index=ignored
    )


def _of_probabilities(op: Any, p: Any, labels: Any, axis: int = -1) -> Any:
    """`mean(-log p[label])`, with p at least the smallest number that division is safe by."""
    return nll(op, op.Log(op.Max(p, LEAST)), labels, axis)


NLL_OF_PROBABILITIES = Kind(
    "nll", "negative log-likelihood of probabilities", "classes", _of_probabilities
)


@loss("kl", labels="like", said="Kullback-Leibler divergence of log-probabilities")
def kl(op: Any, y: Any, t: Any) -> Any:
    """`mean(Σ t · (log t - y))`, summed over the last axis, with `0 · log 0 = 0`.

    Source: PyTorch's `kl_div(reduction="batchmean")`; for more than two axes every place counts
    as a sample.
    """
    logs = op.Log(op.Where(op.Greater(t, 0), t, 1))
    return mean(op, op.sum(t * (logs - y), [len(y.shape) - 1]))


@loss("mean", said="mean")
def mean(op: Any, y: Any) -> Any:
    """The mean of all elements."""
    return op.ReduceMean(y, keepdims=0)


@loss("sum", said="sum")
def total(op: Any, y: Any) -> Any:
    """The sum of all elements."""
    return op.ReduceSum(y, keepdims=0)


def by_class(
    op: Any, scores: Any, labels: Any, axis: int, counts: Any = None
) -> tuple[Any, Any, Any]:
    """Scores as `[N, C]` or `[N, C, ...]`, the classes second; labels and their counts to fit."""
    rank = len(scores.shape)
    axis %= rank
    if axis == 1:
        return scores, labels, counts
    if axis == rank - 1:
        flat = None if counts is None else op.reshape(counts, [-1])
        return op.reshape(scores, [-1, scores.shape[-1]]), op.reshape(labels, [-1]), flat
    rest = [i for i in range(rank) if i != axis]
    return op.transpose(scores, [rest[0], axis, *rest[1:]]), labels, counts
