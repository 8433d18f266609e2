"""Metrics of an evaluation: numbers over all examples, exact for any batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

import numpy as np

from gradtool.errors import UsageError
from gradtool.plugins import require_call
from gradtool.text.words import some, suggest
from gradtool.training.accumulators import (
    Accumulator,
    Array,
    Arrays,
    State,
    UserFunction,
    UserPair,
    of_user,
)
from gradtool.training.measures import MEASURES, Measure, Pairs, of_loss, top
from gradtool.training.sources import imported

NAMES = ("loss", *MEASURES, "top-K", "module:function")
CONFUSION = "confusion"  # a table, and no number
REFUSED = {
    "loss": "is that of a training; gradtool predict computes the outputs of the model alone"
}


@dataclass(frozen=True)
class Target:
    """Labels that count: not those that are `ignored`; and how many places ahead they are."""

    ignored: int | None = None
    shift: int = 0


@dataclass(frozen=True)
class Metric:
    """A number that is better when it is lower, or with `higher` when it is higher.

    It is `of_loss`, where there is one; of an output and labels by a `measure`; or of a class or
    function of the user's, which `start` makes accumulators of.
    """

    name: str
    start: Callable[[], Accumulator]
    measure: Measure | None = None
    of_loss: bool = False
    output: str = ""
    labels: str = ""
    higher: bool = False
    target: Target = Target()
    activations: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_table(self) -> bool:
        """Whether it is no number, but one for each pair of classes."""
        return self.measure is MEASURES[CONFUSION]

    def of_batch(self, loss: float | None, outputs: Arrays, batch: Arrays, count: int) -> State:
        """The operands of the accumulator for a batch of `count` examples.

        Raises:
            UsageError: nothing fits the labels, or there is no loss.
        """
        if self.of_loss and (loss is not None or self.measure is None):
            if loss is None:
                raise UsageError(f"--metric {self.name}: the data have no labels")
            return {"sum": np.asarray(loss * count), "n": np.asarray(count)}
        if self.measure is None:
            return of_user(outputs, batch, count)
        labels = batch.get(self.labels)
        if labels is None:
            raise UsageError(
                f"--metric {self.name}: no labels {self.labels!r} among the inputs; name them as "
                f"in {self.name}:OUTPUT:LABELS"
            )
        output = self._output(outputs, labels)
        pairs = self._numbers if self.measure.numbers else self._classes
        return self.measure.state(pairs(output, outputs[output], labels))

    def rehearse(self, state: State) -> None:
        """Compute the metric of one batch, where code of the user's does.

        Raises:
            UserCodeError: that raises, or returns no number.
        """
        accumulator = self.start()
        if self.measure is None and not self.of_loss:
            accumulator.add(state)
            accumulator.value()

    def _output(self, outputs: Arrays, labels: Array) -> str:
        """The output that the labels are of: the one named, or the first of a shape that fits."""
        assert self.measure is not None  # noqa: S101 - asked with one
        if self.output:
            if self.output not in outputs:
                hint = suggest(self.output, outputs) or f"; there are {some(outputs)}"
                raise UsageError(f"--metric {self.name}: no output {self.output!r}{hint}")
            return self.output
        floats = [name for name, found in outputs.items() if "float" in found.dtype.name]
        fits = (_like,) if self.measure.numbers else (_over_classes, _like)
        for fit in fits:
            for name in floats:
                if fit(outputs[name], labels):
                    return name
        raise UsageError(
            f"--metric {self.name}: no output has the shape that labels {list(labels.shape)} need; "
            f"there are {some(f'{n} {list(a.shape)}' for n, a in outputs.items())}"
        )

    def _numbers(self, output: str, found: Array, labels: Array) -> Pairs:
        if not _like(found, labels):
            raise UsageError(
                f"--metric {self.name}: {output} {list(found.shape)} has other sizes than labels "
                f"{list(labels.shape)}"
            )
        labels = labels.reshape(len(labels) if labels.ndim else 1, -1)
        count = np.ones(labels.shape, bool)
        return Pairs(self.name, found.reshape(labels.shape), labels, count, binary=True)

    def _classes(self, output: str, found: Array, labels: Array) -> Pairs:
        activation = self.activations.get(output, "")
        axis, shift = _axis(found, labels), self.target.shift
        if axis is not None and found.shape[axis] > 1 and labels.dtype.kind in "iu":
            scores = np.moveaxis(found, axis, -1)
            if shift:
                scores, labels = scores[..., :-shift, :], labels[..., shift:]
            count = (labels >= 0) & (labels != self.target.ignored)
            scores, labels, count = scores[count], labels[count].astype(np.int64), count[count]
            wrong = labels[labels >= scores.shape[-1]]
            if wrong.size:
                raise UsageError(
                    f"--metric: a label is {wrong[0]}, and there are {scores.shape[-1]} classes"
                )
            return Pairs(self.name, scores, labels, count, False, activation)
        if not _like(found, labels):
            raise UsageError(
                f"--metric {self.name}: {output} {list(found.shape)} has no axis of classes for "
                f"labels {list(labels.shape)}"
            )
        labels = labels.reshape(len(labels) if labels.ndim else 1, -1)
        count = (labels >= 0) & (labels != self.target.ignored)
        wrong = labels[count & (labels != 0) & (labels != 1)]
        if wrong.size:
            raise UsageError(
                f"--metric {self.name}: a label of {output} is {wrong[0]}; 0 or 1 is needed where "
                "an output has one score for each label"
            )
        return Pairs(self.name, found.reshape(labels.shape), labels, count, True, activation)


Targets = Mapping[str, Target]


def ranked(texts: Sequence[str]) -> Sequence[str]:
    """Metrics of a training, one of which at least is a number: else the loss is as well."""
    is_table = [text.partition(":")[0] == CONFUSION for text in texts]
    return ("loss", *texts) if texts and all(is_table) else texts


def deciding(watched: Sequence[Metric]) -> Metric:
    """The metric that chooses the best weights: the first one that is a number."""
    return next(metric for metric in watched if not metric.is_table)


def metrics(
    texts: Sequence[str],
    labels: Sequence[str],
    targets: Targets = MappingProxyType({}),
    activations: Mapping[str, str] = MappingProxyType({}),
    refused: Collection[str] = (),
) -> list[Metric]:
    """The metrics that `NAME[:OUTPUT[:LABELS]]` and `module:function` mean; the loss if none does.

    Labels among the `targets` of the loss count as they do there.  `activations` are the last
    operators of outputs: Softmax, LogSoftmax or Sigmoid.

    Raises:
        UsageError: there is no such metric, two are of one name, or one is `refused`.
    """
    first = labels[0] if labels else "labels"
    found = [_metric(text, first, targets, activations) for text in texts or ("loss",)]
    names = [metric.name for metric in found]
    if len(set(names)) < len(names):
        raise UsageError(f"--metric: twice the same among {', '.join(names)}")
    for name in (each for each in names if each in refused):
        raise UsageError(f"--metric {name}: {REFUSED[name]}")
    return found


def _metric(text: str, labels: str, targets: Targets, activations: Mapping[str, str]) -> Metric:
    name, _, rest = text.partition(":")
    output, _, named = rest.partition(":")
    labels = named or labels
    if name == "loss":
        return Metric(name, partial(of_loss, exponential=False), of_loss=True)
    measure = MEASURES.get(name)
    if name.startswith("top-") and name[4:].isdigit() and int(name[4:]):
        measure = top(int(name[4:]))
    if measure is not None:
        of_its_loss = name == "perplexity" and not output
        return Metric(
            name, measure.start, measure, of_its_loss, output, labels, measure.higher,
            targets.get(labels, Target()), activations,
        )  # fmt: skip
    if ":" in text:
        return _of_user(text)
    hint = suggest(text, NAMES) or f"; there are {', '.join(NAMES)}"
    raise UsageError(f"no metric {text!r}{hint}")


def _of_user(text: str) -> Metric:
    """The metric of a function `(outputs, batch)`, or of a class with `update` and `compute`.

    Raises:
        UserCodeError: it takes something else.
    """
    found, what = imported(text), f"--metric {text}"
    higher = bool(getattr(found, "higher_is_better", False))
    if isinstance(found, type) and hasattr(found, "update") and hasattr(found, "compute"):
        require_call(what, found)
        require_call(f"{what}.update", found.update, None, {}, {})
        require_call(f"{what}.compute", found.compute, None)
        return Metric(text, partial(UserPair, what, found), higher=higher)
    require_call(what, found, {}, {})
    return Metric(text, partial(UserFunction, what, found), higher=higher)


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
