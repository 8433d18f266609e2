"""The cases of a check: a model with sizes, a loss, a plan and limits."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, TypedDict

from gradtool.check.choice import Choice
from gradtool.check.thresholds import Threshold
from gradtool.errors import UsageError
from gradtool.operators.kernel_sets import AUTO, Kernels
from gradtool.text.words import suggest
from gradtool.workloads.names import kernels_of
from gradtool.workloads.records import Dims, PlannedFor

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(?:\[[A-Za-z0-9._=,-]+\])?")


class MadeFor(TypedDict):
    """A baseline's plan, kernels, sizes and options."""

    dims: Dims
    options: Annotated[dict[str, object], "Options of differentiation that are not their defaults."]
    plan: str
    kernels: PlannedFor


class CaseRecord(MadeFor):
    """A case, its model, and the settings of its plan."""

    case: str
    group: Annotated[str, "The name of the table that the case is of."]
    model: str


@dataclass(frozen=True)
class Case:
    """One model at one size, under one plan.

    `name` tells it from the others; cases that come of one table share the `group`.  `model` is a
    path from `folder`.  `gradient` are arguments of `gradtool.grad` that are not their defaults,
    `kernels` likewise those of `KernelOptions`, `limit` the most that metrics may be, `line` where
    the table begins in the configuration.
    """

    name: str
    model: str
    folder: Path
    plan: Choice = field(default_factory=Choice)
    group: str = ""
    dims: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    batch: int | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    keep_cache: bool = False
    gradient: Mapping[str, Any] = field(default_factory=dict)
    kernels: Mapping[str, Any] = field(default_factory=dict)
    limit: Mapping[str, int] = field(default_factory=dict)
    fail_on: tuple[Threshold, ...] = ()
    line: int = 1

    @property
    def path(self) -> Path:
        """The path of the model."""
        return self.folder / self.model

    @property
    def files(self) -> tuple[str, ...]:
        """Its files beside the model, as paths from `folder`: plan, policy, class weights.

        The last may be names in the model.
        """
        from gradtool.losses.settings import file_of

        weights = (file_of(text) for text in self.gradient.get("loss", ()))
        return (*self.plan.files, *(name for name in weights if name is not None))

    @property
    def differentiated(self) -> dict[str, Any]:
        """The arguments of `gradtool.grad`, with the paths of files from here."""
        given = dict(self.gradient)
        if "loss" in given:
            given["loss"] = [_from(self.folder, loss) for loss in given["loss"]]
        return given

    @property
    def slug(self) -> str:
        """The name in characters of every file system; other names have other slugs."""
        plain = _UNSAFE.sub("-", self.name).strip("-.")[:80]
        if _PLAIN.fullmatch(self.name) and len(self.name) <= 80:
            return plain
        mark = hashlib.sha256(self.name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        return f"{plain or 'case'}-{mark}"

    @property
    def planned_for(self) -> Kernels:
        """The kernels of the planned step."""
        return kernels_of({"kernels": AUTO, "exact_conv": False, **self.kernels})

    @property
    def made_for(self) -> MadeFor:
        """The subject of a baseline beside the model: plan, kernels, sizes and options."""
        sizes = {f"shape of {name}": list(shape) for name, shape in self.shapes.items()}
        batch = {} if self.batch is None else {"batch of the first input": self.batch}
        values = {f"value of {name}": value for name, value in self.values.items()}
        cache = {"keep_cache": True} if self.keep_cache else {}
        options = {**self.gradient, **sizes, **batch, **values, **cache}
        return {
            "dims": dict(sorted(self.dims.items())),
            "options": dict(sorted(options.items())),
            "plan": self.plan.text,
            "kernels": self.planned_for,
        }

    @property
    def record(self) -> CaseRecord:
        """The same for machines, after the names of the case."""
        return {"case": self.name, "group": self.group, "model": self.model, **self.made_for}


def chosen(cases: Sequence[Case], names: Iterable[str]) -> list[Case]:
    """The cases of the names, groups or globs given; all of them where none is.

    Raises:
        UsageError: a name is of no case.
    """
    wanted = list(names)
    found: set[str] = set()
    for name in wanted:
        matching = [c.name for c in cases if name in (c.name, c.group)] or [
            c.name for c in cases if fnmatchcase(c.name, name)
        ]
        if not matching:
            known = dict.fromkeys(n for c in cases for n in (c.group, c.name))
            hint = suggest(name, known) or f"; there are {', '.join(known)}"
            raise UsageError(f"no case {name!r}{hint}")
        found.update(matching)
    return [case for case in cases if not wanted or case.name in found]


def _from(folder: Path, loss: str) -> str:
    """A loss whose class weights, if in a file, are looked for in a folder."""
    from gradtool.losses.settings import file_of

    name = file_of(loss)
    return loss if name is None else loss.replace(f"weight={name}", f"weight={folder / name}")
