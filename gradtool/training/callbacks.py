"""Who hears of a training as it goes on, and may end it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradtool.errors import UserCodeError
from gradtool.plugins import place_of, require_call, user_code

if TYPE_CHECKING:
    from gradtool.training.fit import Fit


@dataclass(frozen=True)
class Begun:
    """What is about to be done.

    `steps` are all of them, None where only the data know; `first` are done already.  `planned`
    are the bytes of the arena, None until a batch has told the sizes.
    """

    steps: int | None
    first: int
    per_epoch: int | None
    batch: int | None
    micro_batches: int


class Watcher:
    """Hears everything, and does nothing about it."""

    def begun(self, begun: Begun) -> None:
        """The first step is next."""

    def tries(self, micro_batches: int, examples: int) -> None:
        """A step in so many parts of so many examples is planned for a memory."""

    def fitted(self, fit: Fit) -> None:
        """It is settled how a memory is kept to."""

    def stepped(self, step: int, epoch: int, loss: float, rate: float, planned: int) -> None:
        """A step is done, in an arena of `planned` bytes."""

    def skipped(self, step: int, scale: float) -> None:
        """A step has updated nothing, because a gradient was infinite at a loss scale."""

    def evaluated(self, step: int, found: Mapping[str, float], *, best: bool) -> None:
        """The model was evaluated."""

    def saved(self, step: int, path: Path) -> None:
        """A checkpoint was written."""

    def said(self, line: str) -> None:
        """Something people should hear."""

    def ended(self) -> None:
        """Training is over, whatever has ended it."""

    def stops(self) -> bool:
        """Whether somebody has asked to stop; asked after each step."""
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
