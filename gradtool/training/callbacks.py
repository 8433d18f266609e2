"""Who hears of a training as it goes on, and may end it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradtool.errors import UsageError, UserCodeError
from gradtool.plugins import object_at, place_of, require_call, user_code

if TYPE_CHECKING:
    from gradtool.training.fit import Fit


@dataclass(frozen=True)
class Begun:
    """A training about to begin.

    Attributes:
        steps: all of them, None where only the data know.
        first: the steps that are done already.
        per_epoch: the steps of an epoch, None where only the data know.
        batch: the examples of a step, None where only the data know.
        micro_batches: in how many parts a step is computed.
        run: the folder of checkpoints, None without one.
        options: what decides the steps, by name: optimizer, rate, schedule, seed and the like.
        tokens: those of texts in a step, the mean of all; None where data are none.
    """

    steps: int | None
    first: int
    per_epoch: int | None
    batch: int | None
    micro_batches: int
    run: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    tokens: float | None = None


class Watcher:
    """Hears of a training as it goes on; a subclass has the methods that it needs.

    Example:
        class Patient(gt.Watcher):
            def stepped(self, step, epoch, loss, rate, planned):
                self.loss = loss

            def stops(self):
                return self.loss < 0.1

        with gt.Trainer("samples/cnn.onnx", steps=2, batch=4) as trainer:
            trainer.fit("samples/cnn.npz", watcher=Patient())
    """

    def begun(self, begun: Begun) -> None:
        """Hear that the first step is next.

        Args:
            begun: steps, the folder of the run, and what decides the steps.
        """

    def tokenizes(self, source: str, texts: int, tokens: int) -> None:
        """Hear that texts are read, after each of them.

        Args:
            source: the file.
            texts: those that are read.
            tokens: theirs.
        """

    def tries(self, micro_batches: int, examples: int) -> None:
        """Hear that a step is planned for a memory.

        Args:
            micro_batches: its parts.
            examples: those of a part.
        """

    def fitted(self, fit: Fit) -> None:
        """Hear how a memory is kept to.

        Args:
            fit: what was tried and what is chosen.
        """

    def stepped(self, step: int, epoch: int, loss: float, rate: float, planned: int) -> None:
        """Hear that a step is done.

        Args:
            step: its number, from 1 on and over runs that were resumed.
            epoch: that which it is part of, from 0 on.
            loss: that of its batch, before the update.
            rate: the learning rate.
            planned: bytes of the arena.
        """

    def skipped(self, step: int, scale: float) -> None:
        """Hear that a step has updated nothing, because a gradient was infinite.

        Args:
            step: its number.
            scale: the loss scale at which it was.
        """

    def evaluated(self, step: int, found: Mapping[str, float], *, best: bool) -> None:
        """Hear of an evaluation.

        Args:
            step: the number of the step before it.
            found: numbers by metric, those of means of weights as `ema METRIC`.
            best: whether none was better.
        """

    def saved(self, step: int, path: Path) -> None:
        """Hear that a checkpoint was written.

        Args:
            step: the number of the step before it.
            path: its JSON file.
        """

    def said(self, line: str) -> None:
        """Hear something for people.

        Args:
            line: a text without an end of line.
        """

    def ended(self) -> None:
        """Hear that training is over, whatever has ended it."""

    def stops(self) -> bool:
        """Whether training shall stop here; asked after each step.

        Returns:
            True for an end with a checkpoint and results.
        """
        return False


HEARD = tuple(name for name in vars(Watcher) if not name.startswith("_") and name != "stops")


class Watchers(Watcher):
    """Several who hear the same; any of them may stop it.

    Raises:
        UserCodeError: a callback of the user's takes other arguments or, when it is called, raises.
    """

    def __init__(self, *watchers: Watcher) -> None:
        self._all = watchers
        for each in watchers:
            for name in () if _is_own(each) else (*HEARD, "stops"):
                _require_signature(each, name)

    def stops(self) -> bool:
        return any(_stops(each) for each in self._all)


def _to_all(name: str) -> Callable[..., None]:
    def tell(self: Watchers, *given: Any, **named: Any) -> None:
        for each in self._all:
            method = getattr(each, name)
            with nullcontext() if _is_own(each) else user_code(_called(each, name), method):
                method(*given, **named)

    return tell


for _name in HEARD:
    setattr(Watchers, _name, _to_all(_name))


def callback(text: str) -> Watcher:
    """The watcher that `module:name` is, or makes when it is called without arguments.

    Raises:
        UsageError: there is no such module or name.
        UserCodeError: it raises, takes arguments, or is no `Watcher`.
    """
    what = f"--callback {text}"
    found = made = object_at(text, "class or Watcher", lambda each: each is not None)
    if found is None:
        module = text.partition(":")[0]
        raise UsageError(f"{what}: no module {module!r}: give PKG.MOD:NAME")
    if callable(found) and not isinstance(found, Watcher):
        require_call(what, found)
        with user_code(what, found):
            made = found()
    if not isinstance(made, Watcher):
        raise UserCodeError(
            f"{what}: {made!r:.60} is no gradtool.Watcher, nor a class of one{place_of(found)}"
        )
    return made


def _is_own(watcher: Watcher) -> bool:
    """Whether no code of the user's is a watcher's."""
    return type(watcher).__module__.startswith("gradtool.")


def _called(watcher: Watcher, name: str) -> str:
    return f"callback {type(watcher).__name__}.{name}"


def _require_signature(watcher: Watcher, name: str) -> None:
    """Hold a method to the parameters of the one that it overrides."""
    _, *takes = inspect.signature(getattr(Watcher, name)).parameters.values()
    given = [each.name for each in takes if each.kind is not each.KEYWORD_ONLY]
    named = {each.name: None for each in takes if each.kind is each.KEYWORD_ONLY}
    require_call(_called(watcher, name), getattr(watcher, name), *given, **named)


def _stops(watcher: Watcher) -> bool:
    if _is_own(watcher):
        return watcher.stops()
    what = _called(watcher, "stops")
    with user_code(what, watcher.stops):
        found: object = watcher.stops()
    if not isinstance(found, bool | np.bool_):
        raise UserCodeError(
            f"{what}: returned {found!r:.60}; True or False is needed{place_of(watcher.stops)}"
        )
    return bool(found)
