"""Settings of an optimizer: numbers that become inputs, constants, switches, choices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from gradtool.errors import UsageError
from gradtool.text.words import suggest

Given = Mapping[str, Any] | Sequence[str]
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Settings:
    """The settings that an optimizer has.

    `numbers` are inputs of the step, with their defaults; so are `optional` ones if given and not
    0, and else they are not there.  `constants` are fixed when the step is made.  A switch is on or
    off, a choice one of several words, the first by default.
    """

    numbers: Mapping[str, float]
    optional: tuple[str, ...] = ()
    constants: Mapping[str, float] = field(default_factory=lambda: _NOTHING)
    switches: Mapping[str, bool] = field(default_factory=lambda: _NOTHING)
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NOTHING)

    @property
    def names(self) -> tuple[str, ...]:
        """All names of settings."""
        groups = (self.numbers, self.optional, self.constants, self.switches, self.choices)
        return tuple(dict.fromkeys(name for group in groups for name in group))


@dataclass(frozen=True)
class Setting:
    """The values of an optimizer's settings: inputs with their defaults, and the rest."""

    inputs: Mapping[str, float]
    fixed: Mapping[str, Any]

    def __contains__(self, name: str) -> bool:
        return name in self.inputs

    def __getitem__(self, name: str) -> Any:
        return self.fixed[name]


def settle(optimizer: str, settings: Settings, given: Given) -> Setting:
    """The default settings, changed by the given ones: texts `NAME[=VALUE]`, or a mapping.

    Raises:
        UsageError: there is nothing of a name, or a value is none that it can have.
    """
    inputs = dict(settings.numbers)
    fixed: dict[str, Any] = {**settings.constants, **settings.switches}
    fixed |= {name: words[0] for name, words in settings.choices.items()}
    for name, value in _pairs(given):
        if name not in settings.names:
            hint = suggest(name, settings.names)
            raise UsageError(
                f"{optimizer} has no option {name!r}{hint}; it has {', '.join(settings.names)}"
            )
        if name in settings.switches:
            fixed[name] = _switch(optimizer, name, value)
        elif name in settings.choices:
            fixed[name] = _choice(optimizer, name, value, settings.choices[name])
        elif name in settings.constants:
            fixed[name] = _number(optimizer, name, value)
        elif name in settings.numbers or _number(optimizer, name, value):
            inputs[name] = _number(optimizer, name, value)
    return Setting(inputs, fixed)


def _pairs(given: Given) -> list[tuple[str, Any]]:
    if isinstance(given, Mapping):
        return list(given.items())
    pairs: list[tuple[str, Any]] = []
    for text in given:
        name, equals, value = text.partition("=")
        pairs.append((name.strip().replace("-", "_"), value.strip() if equals else True))
    return pairs


def _switch(optimizer: str, name: str, value: Any) -> bool:
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    found = known.get(str(value).lower())
    if found is None:
        raise UsageError(f"{optimizer}: {name} is true or false, not {value!r}")
    return found


def _choice(optimizer: str, name: str, value: Any, words: Sequence[str]) -> str:
    if value not in words:
        raise UsageError(f"{optimizer}: {name} is one of {', '.join(words)}, not {value!r}")
    return str(value)


# Where a number may lie, both ends of a half-open range; everything else is not below 0.
_RANGES: Mapping[str, tuple[float, float]] = {
    "beta1": (0, 1), "beta2": (0, 1), "alpha": (0, 1), "beta2_decay": (-math.inf, 0),
}  # fmt: skip


def _number(optimizer: str, name: str, value: Any) -> float:
    try:
        found = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        found = math.nan
    low, high = _RANGES.get(name, (0, math.inf))
    if not low <= found < high or math.isinf(found):
        limits = f"from {low:g} to below {high:g}" if name in _RANGES else "not below 0"
        raise UsageError(f"{optimizer}: {name} is a number {limits}, not {value!r}")
    return found
