"""Metrics of outputs and labels as formulas of numpy: the state of a batch, and the number of all.

Source: scikit-learn 1 (`sklearn.metrics`), whose definitions these are where it has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradtool.errors import UsageError
from gradtool.training.accumulators import Accumulator, Array, Moments, State, Sums, Whole

LARGEST = 700.0  # that exp takes


@dataclass(frozen=True)
class Pairs:
    """Scores `[M, C]` and their targets, of the places that count.

    `labels` are classes `[M]`; or, of scores that are `binary`, 0 or 1 in each of C columns, of
    which those that `count` do.  `activation` is the last operator of the output: Softmax,
    LogSoftmax, Sigmoid, or nothing of those.
    """

    name: str
    scores: Array
    labels: Array
    count: Array
    binary: bool
    activation: str = ""

    @property
    def logs(self) -> Array:
        """Logarithms of the probabilities of classes."""
        scores = self.scores.astype(np.float64)
        if self.activation == "LogSoftmax":
            return scores
        if self.activation == "Softmax":
            with np.errstate(divide="ignore"):
                return np.log(scores)
        apart: Array = scores - scores.max(-1, keepdims=True)
        apart -= np.log(np.exp(apart).sum(-1, keepdims=True))
        return apart

    @property
    def chosen(self) -> Array:
        """The class of the highest score, or whether a column is more likely than not."""
        least = 0.5 if self.activation == "Sigmoid" else 0.0
        chosen: Array = self.scores > least if self.binary else self.scores.argmax(-1)
        return chosen


@dataclass(frozen=True)
class Measure:
    """The state of a batch, and what accumulates it; `numbers` are held against numbers."""

    state: Callable[[Pairs], State]
    start: Callable[[], Accumulator]
    higher: bool = True
    numbers: bool = False


# ------------------------------------------------------------------------------------ numbers


def _errors(power: int) -> Callable[[Pairs], State]:
    def state(pairs: Pairs) -> State:
        error = pairs.scores.astype(np.float64) - pairs.labels.astype(np.float64)
        return {"sum": (np.abs(error) ** power).sum(), "n": np.asarray(error.size)}

    return state


def _moments(pairs: Pairs) -> State:
    labels = pairs.labels.astype(np.float64)
    mean = labels.mean(0)
    apart, error = labels - mean, pairs.scores.astype(np.float64) - labels
    return {
        "n": np.asarray(len(labels)), "mean": mean, "squares": (apart * apart).sum(0),
        "errors": (error * error).sum(0),
    }  # fmt: skip


def _r2(found: State) -> float:
    """`1 - Σ (y - t)² / Σ (t - mean t)²`, the mean over columns; 1 or 0 of a constant column."""
    errors, squares = found["errors"], found["squares"]
    still = np.where(errors == 0, 1.0, 0.0)
    moves = squares != 0
    return float(np.where(moves, 1 - errors / np.where(moves, squares, 1.0), still).mean())


# ------------------------------------------------------------------------------------ classes


def top(most: int) -> Measure:
    """The share of labels among the `most` highest scores; ties are in the order of classes."""

    def state(pairs: Pairs) -> State:
        if pairs.binary:
            hit = (pairs.chosen == pairs.labels) & pairs.count
            return {"sum": hit.sum(), "n": pairs.count.sum()}
        scores, labels = pairs.scores, pairs.labels[:, None]
        classes = scores.shape[-1]
        if 1 < most >= classes:
            raise UsageError(f"--metric top-{most}: there are {classes} classes, so it is always 1")
        own = np.take_along_axis(scores, labels, -1)
        ahead = (scores > own) | ((scores == own) & (np.arange(classes) < labels))
        hit = (ahead.sum(-1) < most) & ~np.isnan(own[:, 0])
        return {"sum": hit.sum(), "n": np.asarray(len(labels))}

    return Measure(state, lambda: Sums(_mean))


def _surprise(pairs: Pairs) -> State:
    _require_classes(pairs)
    own = np.take_along_axis(pairs.logs, pairs.labels[:, None], -1)
    return {"sum": -own.sum(), "n": np.asarray(len(own))}


def _outcomes(pairs: Pairs) -> State:
    """By class or column: what is found, what is not its own, and what is missed."""
    if pairs.binary:
        found, true = pairs.chosen & pairs.count, (pairs.labels == 1) & pairs.count
        both = (found & true).sum(0)
        return {"tp": both, "fp": found.sum(0) - both, "fn": true.sum(0) - both}
    matrix = confusion_of(pairs)["matrix"]
    both = matrix.diagonal()
    return {"tp": both, "fp": matrix.sum(0) - both, "fn": matrix.sum(1) - both}


def confusion_of(pairs: Pairs) -> State:
    """The confusion matrix `[C, C]`: rows are labels, columns what is predicted."""
    classes = 2 if pairs.binary else pairs.scores.shape[-1]
    true, chosen = pairs.labels, pairs.chosen
    if pairs.binary:
        if pairs.scores.shape[-1] != 1:
            raise UsageError(f"--metric {pairs.name}: needs one class for an example, not several")
        true, chosen = true[pairs.count].astype(np.int64), chosen[pairs.count].astype(np.int64)
    places = np.bincount(true * classes + chosen, minlength=classes * classes)
    return {"matrix": places.reshape(classes, classes)}


def _f1(found: State) -> float | None:
    """The mean of `2 tp / (2 tp + fp + fn)` over classes that are in labels or predictions."""
    twice = 2 * found["tp"]
    return _over_classes(twice, twice + found["fp"] + found["fn"])


def _f1_micro(found: State) -> float | None:
    twice = 2 * found["tp"].sum(keepdims=True)
    return _over_classes(twice, twice + found["fp"].sum() + found["fn"].sum())


def _iou(found: State) -> float | None:
    """The mean of `tp / (tp + fp + fn)` over classes that are in labels or predictions."""
    return _over_classes(found["tp"], found["tp"] + found["fp"] + found["fn"])


def _over_classes(above: Array, below: Array) -> float | None:
    there = below > 0
    return float((above[there] / below[there]).mean()) if there.any() else None


# ------------------------------------------------------------------------------------- ranking


def _ranked(pairs: Pairs) -> State:
    """Scores by column, whether each is of the column's class, and whether it counts."""
    if pairs.binary:
        scores = pairs.scores.astype(np.float64)
        return {"scores": scores, "true": pairs.labels == 1, "count": pairs.count}
    logs = pairs.logs
    classes = np.arange(logs.shape[-1])
    scores = logs[:, 1:] - logs[:, :1] if len(classes) == 2 else np.exp(logs)
    true = pairs.labels[:, None] == (classes if len(classes) != 2 else 1)
    return {"scores": scores, "true": true, "count": np.ones(true.shape, bool)}


def _over_columns(
    name: str, curve: Callable[[Array, Array], float]
) -> Callable[[State], float | None]:
    """The mean of a curve over columns that have labels of both kinds."""

    def finish(found: State) -> float | None:
        each: list[float] = []
        columns = (found[part].T for part in ("scores", "true", "count"))
        for column, own, count in zip(*columns, strict=True):
            scores, true = column[count], own[count]
            if np.isnan(scores).any():
                each.append(math.nan)
            elif true.any() and not true.all():
                each.append(curve(scores, true))
        if not each and len(found["scores"]):
            raise UsageError(f"--metric {name}: needs labels of two classes, and there is one")
        return float(np.mean(each)) if each else None

    return finish


def _steps(scores: Array, true: Array) -> tuple[Array, Array]:
    """How many are true, and how many are not, among those from each score on, highest first."""
    order = np.argsort(-scores, kind="stable")
    scores, true = scores[order], true[order]
    ends = np.append(np.flatnonzero(np.diff(scores)), len(scores) - 1)
    hits = np.cumsum(true)[ends]
    return hits.astype(np.float64), 1.0 + ends - hits


def _auc(scores: Array, true: Array) -> float:
    """The area under true over false positives, by trapezoids."""
    hits, wrong = (np.append(0.0, each) for each in _steps(scores, true))
    area = ((hits[1:] + hits[:-1]) / 2 * np.diff(wrong)).sum()
    return float(area / (hits[-1] * wrong[-1]))


def _average_precision(scores: Array, true: Array) -> float:
    """`Σ (Rᵢ - Rᵢ₋₁) Pᵢ`."""
    hits, wrong = _steps(scores, true)
    return float((np.diff(hits, prepend=0.0) * hits / (hits + wrong)).sum() / hits[-1])


# -------------------------------------------------------------------------------------- by name


def _mean(found: State) -> float | None:
    return float(found["sum"] / found["n"]) if found["n"] else None


def _root(found: State) -> float | None:
    mean = _mean(found)
    return None if mean is None else math.sqrt(mean)


def exp_mean(found: State) -> float | None:
    """The exponential of a mean."""
    mean = _mean(found)
    return None if mean is None else math.exp(mean) if mean < LARGEST else math.inf


def of_loss(*, exponential: bool) -> Accumulator:
    """The accumulator of losses, perhaps with the exponential of their mean."""
    return Sums(exp_mean if exponential else _mean)


def _require_classes(pairs: Pairs) -> None:
    if pairs.binary:
        raise UsageError(f"--metric {pairs.name}: needs scores of several classes")


def _matrix(found: State) -> Any:
    return found["matrix"] if found["matrix"].any() else None


def _ranking(name: str, curve: Callable[[Array, Array], float]) -> Measure:
    finish = _over_columns(name, curve)
    return Measure(_ranked, lambda: Whole(f"--metric {name}", finish))


MEASURES: dict[str, Measure] = {
    "accuracy": top(1),
    "f1": Measure(_outcomes, lambda: Sums(_f1)),
    "f1-micro": Measure(_outcomes, lambda: Sums(_f1_micro)),
    "iou": Measure(_outcomes, lambda: Sums(_iou)),
    "auc": _ranking("auc", _auc),
    "average-precision": _ranking("average-precision", _average_precision),
    "perplexity": Measure(_surprise, lambda: Sums(exp_mean), higher=False),
    "confusion": Measure(confusion_of, lambda: Sums(_matrix)),
    "mae": Measure(_errors(1), lambda: Sums(_mean), higher=False, numbers=True),
    "rmse": Measure(_errors(2), lambda: Sums(_root), higher=False, numbers=True),
    "r2": Measure(_moments, lambda: Moments(_r2), numbers=True),
}
