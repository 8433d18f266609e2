"""Groups of parameters: learning rates and weight decay by name, matrices, limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.graph.stages import stage
from gradtool.passes.update_rules import Target
from gradtool.passes.update_settings import Given
from gradtool.text.words import some, suggest

NONE: Mapping[str, str] = MappingProxyType({})
Scales = Mapping[str, float] | Sequence[str]


@dataclass(frozen=True)
class Updates:
    """The requested updates: an optimizer, its settings, limits and groups.

    Gradients are clipped to `clip_value` one by one, then all together to the norm `clip_norm`.
    Parameters that match `no_decay` have no weight decay, those that match a glob of `lr_scale`
    its factor (the last that matches counts).  With `sparse`, gradients of tables stay rows where
    they can.  Parameters `unfrozen` at an epoch count their steps from there.
    """

    optimizer: str = "none"
    optimizer_option: Given = ()
    clip_norm: float | None = None
    clip_value: float | None = None
    no_decay: Sequence[str] = ()
    lr_scale: Scales = ()
    sparse: bool = False
    unfrozen: Mapping[int, Sequence[str]] | None = None

    def __post_init__(self) -> None:
        """Refuse invalid limits and factors.

        Raises:
            UsageError: a limit is not positive and finite, or a factor is none.
        """
        for flag, limit in (("--clip-norm", self.clip_norm), ("--clip-value", self.clip_value)):
            if limit is not None and not 0 < limit < math.inf:
                raise UsageError(f"{flag} {limit}: a limit is a positive number")
        self.scales()

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Updates:
        """The updates requested by options of `gradtool.grad`; others are left aside."""
        given = {each.name: options[each.name] for each in fields(cls) if each.name in options}
        return cls(**given)

    def epoch_of(self, name: str) -> int:
        """The epoch at which a parameter begins to be trained, counted from 0."""
        return begins(name, self.unfrozen or {})

    def scales(self) -> list[tuple[str, float]]:
        """Globs and factors of the learning rate."""
        given = self.lr_scale
        if isinstance(given, Mapping):
            pairs = [(glob, str(factor)) for glob, factor in given.items()]
        else:
            pairs = [(glob, factor) for glob, _, factor in (t.rpartition("=") for t in given)]
        found = []
        for glob, text in pairs:
            try:
                factor = float(text)
            except ValueError:
                factor = math.nan
            if not glob or not 0 <= factor < math.inf:
                raise UsageError(f"--lr-scale {glob}={text}: write GLOB=FACTOR, as in 'b.*=0.1'")
            found.append((glob, factor))
        return found


def is_matrix(x: ir.Value) -> bool:
    """Whether a parameter has two axes and is no table of embeddings, read by rows."""
    looked_up = any(
        use.node.op_type == "Gather" and use.idx == 0 and stage(use.node) != "update"
        for use in x.uses()
    )
    return x.shape is not None and len(x.shape) == 2 and not looked_up


def targets(
    asked: Updates,
    parameters: Iterable[ir.Value],
    *,
    decays: bool,
    matrix: Callable[[ir.Value], bool] = is_matrix,
    others: Sequence[str] = (),
    roles: Mapping[str, str] = NONE,
) -> list[Target]:
    """The parameters with the settings of their groups, and whether they are a `matrix`.

    Globs may also match `others`, which are updated elsewhere.  Messages name the `roles` of
    matches that are not updated.

    Raises:
        UsageError: a glob matches none, or there is no weight decay to leave out.
    """
    values = list(parameters)
    names = [*(v.name or "" for v in values), *others]
    for flag, globs in (
        ("--no-decay", asked.no_decay), ("--lr-scale", [glob for glob, _ in asked.scales()])
    ):  # fmt: skip
        for glob in globs:
            if not any(_matches(name, glob) for name in names):
                held = (f"{n} ({said})" for n, said in roles.items() if _matches(n, glob))
                if listed := some(held, 5):
                    raise UsageError(
                        f"{flag} {glob}: nothing of what it matches is updated: {listed}"
                    )
                known = suggest(glob, names) or f" (there are {some(names, 5)})"
                raise UsageError(f"{flag} {glob}: no such parameter{known}")
    if asked.no_decay and not decays:
        raise UsageError(
            f"--no-decay changes nothing: {asked.optimizer} has no weight decay here "
            "(--optimizer-option weight_decay=…)"
        )
    return [
        Target(
            x,
            scale=next((f for g, f in reversed(asked.scales()) if _matches(x.name or "", g)), 1.0),
            decays=decays and not any(_matches(x.name or "", glob) for glob in asked.no_decay),
            matrix=matrix(x),
        )
        for x in values
    ]


def begins(name: str, unfrozen: Mapping[int, Sequence[str]]) -> int:
    """The first epoch of which a name or glob matches a parameter; 0 if none does."""
    found = (e for e, globs in unfrozen.items() if any(_matches(name, glob) for glob in globs))
    return min(found, default=0)


def _matches(name: str, glob: str) -> bool:
    return name == glob or fnmatchcase(name, glob)
