"""What an evaluation tells of a model: numbers over all examples, exact for any batches."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from gradtool.errors import UsageError
from gradtool.text.words import some, suggest
from gradtool.training.sources import imported, theirs

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]
Counted = tuple[float, int]  # a sum, and of how many it is
Measure = Callable[[Array, Array], Counted]

_LARGEST = 700.0  # that exp takes
NAMES = ("loss", "accuracy", "top-K", "perplexity", "mae", "module:function")


@dataclass(frozen=True)
class Metric:
    """A number that is better when it is lower, or with `higher` when it is higher.

    Without a `measure` it is the loss, or what `finish` makes of it; a `function` is called with
    the outputs and the batch and returns a mean over the examples.
    """

    name: str
    measure: Measure | None = None
    function: Callable[[Arrays, Arrays], float] | None = None
    finish: Callable[[float], float] = float
    output: str = ""
    labels: str = ""
    higher: bool = False

    def of_batch(self, loss: float | None, outputs: Arrays, batch: Arrays, count: int) -> Counted:
        """The sum over a batch of `count` examples, and of how many numbers it is.

        Raises:
            UsageError: nothing fits the labels, there is no loss, or the function fails.
        """
        if self.function is not None:
            with theirs(f"--metric {self.name}"):
                mean = self.function(outputs, batch)
            try:
                return float(mean) * count, count
            except (TypeError, ValueError):
                raise UsageError(
                    f"--metric {self.name}: returned {mean!r:.60}, which is no number: a mean over "
                    "the examples is needed"
                ) from None
        if self.measure is None:
            if loss is None:
                raise UsageError(f"--metric {self.name}: the data have no labels")
            return loss * count, count
        labels = batch.get(self.labels)
        if labels is None:
            raise UsageError(
                f"--metric {self.name}: no labels {self.labels!r} among the inputs; name them as "
                f"in {self.name}:OUTPUT:LABELS"
            )
        scores = self._scores(outputs, labels)
        return self.measure(scores, labels)

    def _scores(self, outputs: Arrays, labels: Array) -> Array:
        """The output that the labels are of: the one named, or the first of a shape that fits."""
        if self.output:
            if self.output not in outputs:
                hint = suggest(self.output, outputs) or f"; there are {some(outputs)}"
                raise UsageError(f"--metric {self.name}: no output {self.output!r}{hint}")
            return outputs[self.output]
        fits = _like if self.measure is _absolute else _over_classes
        for found in outputs.values():
            if "float" in found.dtype.name and fits(found, labels):
                return found
        raise UsageError(
            f"--metric {self.name}: no output has the shape that labels {list(labels.shape)} need; "
            f"there are {some(f'{n} {list(a.shape)}' for n, a in outputs.items())}"
        )


@dataclass(frozen=True)
class Target:
    """Which labels count: not those that are `ignored`; and how many places ahead they are."""

    ignored: int | None = None
    shift: int = 0


Targets = Mapping[str, Target]


def metrics(
    texts: Sequence[str], labels: Sequence[str], targets: Targets = MappingProxyType({})
) -> list[Metric]:
    """The metrics that `NAME[:OUTPUT[:LABELS]]` and `module:function` mean; the loss if none does.

    Labels among the `targets` of the loss count as they do there.

    Raises:
        UsageError: there is no such metric, or two of one name.
    """
    first = labels[0] if labels else "labels"
    found = [_metric(text, first, targets) for text in texts or ("loss",)]
    names = [metric.name for metric in found]
    if len(set(names)) < len(names):
        raise UsageError(f"--metric: twice the same among {', '.join(names)}")
    return found


def _metric(text: str, labels: str, targets: Targets) -> Metric:
    name, _, rest = text.partition(":")
    output, _, named = rest.partition(":")
    labels = named or labels
    target = targets.get(labels, Target())
    if name == "loss":
        return Metric("loss")
    if name == "perplexity":
        return Metric("perplexity", finish=_exp)
    if name == "accuracy":
        return Metric(name, _top(1, target), output=output, labels=labels, higher=True)
    if name == "mae":
        return Metric(name, _absolute, output=output, labels=labels)
    if name.startswith("top-") and name[4:].isdigit() and int(name[4:]):
        return Metric(name, _top(int(name[4:]), target), output=output, labels=labels, higher=True)
    if ":" in text:
        function = imported(text)
        _require_two(text, function)
        higher = bool(getattr(function, "higher_is_better", False))
        return Metric(text, function=function, higher=higher)
    hint = suggest(text, NAMES) or f"; there are {', '.join(NAMES)}"
    raise UsageError(f"no metric {text!r}{hint}")


def _require_two(text: str, function: Callable[..., Any]) -> None:
    """Refuse a function that cannot be called with outputs and a batch."""
    try:
        takes = inspect.signature(function)
    except ValueError:
        return  # one in C, which says nothing
    try:
        takes.bind({}, {})
    except TypeError as error:
        raise UsageError(
            f"--metric {text}: takes {takes}; it is called with outputs and batch ({error})"
        ) from error


def _exp(mean: float) -> float:
    return math.exp(mean) if mean < _LARGEST else math.inf


def _axis(scores: Array, labels: Array) -> int | None:
    """The axis of the classes: the last one, or that behind the examples."""
    for axis in (scores.ndim - 1, 1):
        if 0 <= axis < scores.ndim:
            rest = scores.shape[:axis] + scores.shape[axis + 1 :]
            if rest == labels.shape:
                return axis
    return None


def _over_classes(scores: Array, labels: Array) -> bool:
    return labels.dtype.kind in "iu" and _axis(scores, labels) is not None


def _like(found: Array, labels: Array) -> bool:
    return found.size == labels.size


def _top(most: int, target: Target) -> Measure:
    """How many labels are among the `most` highest scores, of those that count.

    Labels below 0 do not, nor the one that is ignored.
    """

    def measure(scores: Array, labels: Array) -> Counted:
        """What is right and how many examples count, of a batch."""
        axis = _axis(scores, labels)
        if axis is None:
            raise UsageError(
                f"scores {list(scores.shape)} have no axis of classes for labels "
                f"{list(labels.shape)}"
            )
        scores = np.moveaxis(scores, axis, -1)
        if target.shift:
            scores, labels = scores[..., : -target.shift, :], labels[..., target.shift :]
        classes = scores.shape[-1]
        if 1 < most >= classes:
            raise UsageError(f"--metric top-{most}: there are {classes} classes, so it is always 1")
        counted = (labels >= 0) & (labels != target.ignored)
        wrong = labels[counted & (labels >= classes)]
        if wrong.size:
            raise UsageError(f"--metric: a label is {wrong[0]}, and there are {classes} classes")
        places = np.where(counted, labels, 0)[..., None].astype(np.int64)
        own = np.take_along_axis(scores, places, -1)
        order = np.arange(classes)
        ahead = (scores > own) | ((scores == own) & (order < places))
        hit = (ahead.sum(-1) < most) & counted & ~np.isnan(own[..., 0])
        return float(hit.sum()), int(counted.sum())

    return measure


def _absolute(found: Array, labels: Array) -> Counted:
    """The sum of absolute errors."""
    wide = found.astype(np.float64).reshape(-1) - labels.astype(np.float64).reshape(-1)
    return float(np.abs(wide).sum()), found.size
