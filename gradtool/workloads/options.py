"""Options as fields of records, of which flags, configuration keys and keywords are made.

A record is made once, where a command or a function is called, and passed whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal

from gradtool.errors import UsageError
from gradtool.text.words import suggest

Kind = Literal[
    "flag", "globs", "switch", "text", "texts", "names", "labels", "choice", "plan", "whole",
    "number", "seconds", "bytes", "path",
]  # fmt: skip
SEVERAL = ("texts", "names", "labels")  # kinds whose flag may be given several times


@dataclass(frozen=True)
class Option:
    """A field of a record: its flag, its help, its bounds, and what it needs or excludes.

    `least` and `most` bound a number and include themselves; `above` does not.  The kind `names`
    is `texts` of which `@FILE` stands for the lines of a file; `globs` a flag that may carry one,
    `--flag=GLOB`; a `switch` has a flag for yes and one for no.  `shown` is the default as people
    read it, where it is not the value.  `needs` are names of options, or `NAME=VALUE`;
    `excludes` are names, and `why` ends a sentence about the option.  `group` is a title on pages
    of help, `doc` the description of the keyword where `help` describes the flag alone.  Without
    `trains`, a training does not have the option: nobody would see its result there.
    """

    name: str
    kind: Kind
    default: Any
    help: str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    least: int | None = None
    above: float | None = None
    most: int | None = None
    shown: str = ""
    needs: str = ""
    excludes: str = ""
    why: str = ""
    group: str = ""
    doc: str = ""
    trains: bool = True

    @property
    def key(self) -> str:
        """The key of a configuration."""
        return self.name.replace("_", "-")

    @property
    def flag(self) -> str:
        """The flag of a command; what is on by default is turned off."""
        if self.kind == "switch":
            return f"--{self.key}/--no-{self.key}"
        return f"--no-{self.key}" if self.default is True else f"--{self.key}"

    def require_bounds(self, value: Any) -> None:
        """Refuse a number out of bounds, and a word that is no choice.

        Raises:
            UsageError: naming the option.
        """
        if self.choices and value not in self.choices:
            hint = suggest(str(value), self.choices)
            raise UsageError(f"no {self.name} {value!r}{hint}; there are {', '.join(self.choices)}")
        if isinstance(value, int | float) and not isinstance(value, bool):
            low, high = self.least, self.most
            if self.above is not None and not value > self.above:
                raise UsageError(f"{self.name} is {value}, and has to be above {self.above:g}")
            if value != value or (low is not None and value < low):  # noqa: PLR0124 - a NaN
                raise UsageError(f"{self.name} is {value}, and has to be at least {low or 0}")
            if high is not None and value > high:
                raise UsageError(f"{self.name} is {value}, and may be {high} at most")

    def is_set(self, values: Mapping[str, Any]) -> bool:
        """Whether a value other than the default is there."""
        value = values.get(self.name, self.default)
        if isinstance(value, bool) or isinstance(self.default, bool):
            return value is not self.default
        empty = value is None or (hasattr(value, "__len__") and len(value) == 0)
        return not empty and value != self.default


def option(kind: Kind, default: Any, help: str, **how: Any) -> Any:  # noqa: A002 - as click has it
    """A field with a flag; `how` are fields of `Option`."""
    return field(default=default, metadata={"kind": kind, "help": help, **how})


def keyword(default: Any, doc: str) -> Any:
    """A field that only Python gives."""
    return field(default=default, metadata={"doc": doc})


def options_of(record: type[Any]) -> dict[str, Option]:
    """The options of a record that have a flag, by name."""
    return {
        each.name: Option(each.name, default=each.default, **each.metadata)
        for each in fields(record)
        if each.default is not MISSING and "kind" in each.metadata
    }


def documented(record: type[Any]) -> dict[str, str]:
    """By field the description of its keyword."""
    told = ((each.name, each.metadata) for each in fields(record) if each.metadata)
    return {name: found.get("doc") or found["help"] for name, found in told}


def is_met(needs: str, values: Mapping[str, Any], known: Mapping[str, Option]) -> bool:
    """Whether values have what an option needs: `NAME` set, or `NAME=VALUE`."""
    name, equals, wanted = needs.partition("=")
    if equals:
        return bool(values.get(name) == wanted)
    if name in known:
        return known[name].is_set(values)
    return values.get(name) not in (None, "none", False)


def unmet(record: type[Any], values: Mapping[str, Any]) -> Iterator[str]:
    """Conflicts of options, by their names."""
    known = options_of(record)
    for each in known.values():
        if not each.is_set(values):
            continue
        for need in each.needs.split():
            if not is_met(need, values, known):
                yield f"{each.name} needs {need}"
        for other in each.excludes.split():
            if known[other].is_set(values):
                why = f": {each.name} {each.why}" if each.why else ""
                yield f"{each.name} cannot be combined with {other}{why}"


def require(record: Any) -> None:
    """Refuse values out of bounds, and options that cannot be combined.

    Raises:
        UsageError: naming the first of them.
    """
    values = vars(record)
    for name, each in options_of(type(record)).items():
        if each.is_set(values):
            each.require_bounds(values[name])
    for problem in unmet(type(record), values):
        raise UsageError(problem)
