"""Limits as people write them: `8GiB`, `60%` of what keeping everything takes, `min`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from gradtool.errors import UsageError
from gradtool.graph.optimizers import OPTIMIZERS
from gradtool.graph.specs import Spec
from gradtool.passes.update_kinds import kind_of
from gradtool.passes.update_rules import Extent
from gradtool.program import Program
from gradtool.text.names import escape, shorten
from gradtool.text.units import parse_bytes
from gradtool.workloads.workload import Workload

_SECONDS = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) *(s|min|h)?")
_UNITS = {None: 1, "s": 1, "min": 60, "h": 3600}
_PERCENT = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) *%")


@dataclass(frozen=True)
class Budget:
    """Memory that a step may take: `bytes`, or a `share` of what keeping everything takes.

    Neither means as little as can be reached.  The state of `optimizer` is part of it.
    """

    bytes: int | None = None
    share: Fraction | None = None
    optimizer: str = "none"

    @classmethod
    def of(cls, given: str | int, optimizer: str = "none") -> Budget:
        """The budget that `8GiB`, `60%`, `min` or a number of bytes means.

        Raises:
            UsageError: it is none of these, or there is no such optimizer.
        """
        if optimizer not in OPTIMIZERS:
            raise UsageError(f"no optimizer {optimizer!r}; there are {', '.join(OPTIMIZERS)}")
        if isinstance(given, int):
            return cls(max(given, 0), None, optimizer)
        if given.strip() == "min":
            return cls(None, None, optimizer)
        if given.strip().endswith("%"):
            return cls(None, parse_percent(given), optimizer)
        return cls(parse_bytes(given), None, optimizer)

    def arena(self, work: Workload) -> int | None:
        """Bytes that are left for the arena beside the optimizer's state; None for the least."""
        state = self.state(work)
        if self.share is not None:
            return int(self.share * (work.kept.peak + state)) - state
        return None if self.bytes is None else self.bytes - state

    def state(self, work: Workload) -> int:
        """Bytes of the optimizer's state."""
        return state_bytes(work.program, self.optimizer)


def parse_percent(text: str) -> Fraction:
    """The share that `20%` means. Raises UsageError if it is no percentage."""
    match = _PERCENT.fullmatch(text.strip())
    if match is None:
        shown = shorten(escape(text), 40, ellipsis="...")
        raise UsageError(f"'{shown}' is not a percentage: write it as in 20%")
    return Fraction(match[1]) / 100


def parse_seconds(text: str) -> float:
    """The seconds that `30s`, `2min` or `30` mean. Raises UsageError if it is no duration."""
    match = _SECONDS.fullmatch(text.strip())
    if match is None:
        shown = shorten(escape(text), 40, ellipsis="...")
        raise UsageError(f"'{shown}' is not a duration: write it as in 30s or 2min")
    return float(match[1]) * _UNITS[match[2]]


def state_bytes(program: Program, optimizer: str) -> int:
    """State of one of `OPTIMIZERS` at its defaults, in bytes, for the trained values of a program.

    Trained are the parameters with a gradient, or without any, the inputs with one.
    """
    if optimizer == OPTIMIZERS[0]:
        return 0
    kind, setting = kind_of(optimizer)
    tables = {step.inputs[0] for step in program.steps if step.op == "Gather"}
    found: dict[str, int] = {"parameter": 0, "input": 0}
    for number, value in enumerate(program.values):
        if value.name in program.gradients and value.kind in found and value.spec is not None:
            spec = value.spec
            matrix = len(spec.shape) == 2 and number not in tables
            kept = kind.state(setting, Extent(spec.shape, matrix)).values()
            found[value.kind] += sum(program.aligned(Spec(s, spec.dtype).bytes) for s in kept)
    return found["parameter"] or found["input"]
