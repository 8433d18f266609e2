"""Policies of recompute: named ones, ones from files, and marks on single steps.

A policy says *may*; `mirror` says *should*, and the simulator whether it pays.  Steps beyond every
policy are left out here: graph inputs have no step, and steps that draw at random are not
`Step.recomputable`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from gradtool.errors import SystemErrors, UsageError
from gradtool.ops import traits
from gradtool.ops.formulas import elementwise_operators
from gradtool.ops.traits import Recompute
from gradtool.program import Program, Step
from gradtool.text import toml
from gradtool.text.words import some, suggest


@dataclass(frozen=True)
class Policy:
    """The operators that may run twice: of the classes `of` if `twice`, else of all others.

    Operators of `keep` run once, those of `drop` may run twice, whatever their class (see
    `gradtool.ops.traits`).  `reason` is one line, `source` its origin.
    """

    name: str
    of: frozenset[Recompute]
    twice: bool
    reason: str
    source: str
    keep: frozenset[str] = frozenset()
    drop: frozenset[str] = frozenset()

    def __call__(self, step: Step) -> bool:
        return self.allows(step.op)

    def allows(self, op: str) -> bool:
        """Whether an operator may run twice, by its full name."""
        if op in self.keep or op in self.drop:
            return op in self.drop
        return (_class_of(op) in self.of) is self.twice

    def __str__(self) -> str:
        return f"{self.name}: {self.reason} ({self.source})"


@cache
def _class_of(op: str) -> Recompute:
    declared = traits.of(op).recompute
    return declared or ("cheap" if op in elementwise_operators() else "")


_NAMED = (
    Policy(
        "mirror", frozenset({"product", "never"}), False,
        "everything but the operators that do real work",
        "MXNet's backward mirroring; Zheng et al. 2020, arXiv:1805.08899",
    ),
    Policy(
        "dots", frozenset({"product"}), False,
        "everything but products, convolutions and recurrent layers",
        "jax.checkpoint_policies.dots_saveable",
    ),
    Policy(
        "cheap", frozenset({"cheap"}), True, "only elementwise operators and layouts",
        "Chen et al. 2016, arXiv:1604.06174: drop the results of low cost operations",
    ),
)  # fmt: skip
POLICIES = {policy.name: policy for policy in _NAMED}


def policy_named(text: str) -> Policy:
    """The policy of a name, or of a TOML file.

    A file may hold `base` (the name of a policy, else `mirror`), `keep` and `drop` (lists of
    operators, as `Softmax` or `com.acme::Gate`) and `reason`.

    Raises:
        UsageError: there is no such policy, or the file is none.
    """
    if text in POLICIES:
        return POLICIES[text]
    if not text.endswith(".toml"):
        raise UsageError(
            f"no policy {text!r}{suggest(text, POLICIES)}; "
            f"there are {', '.join(POLICIES)}, or a file NAME.toml"
        )
    try:
        with SystemErrors(text):
            written = Path(text).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{text}: is no TOML: {error}") from error
    return _from_table(toml.parsed(written, text), text)


def _from_table(table: dict[str, Any], path: str) -> Policy:
    for key in table:
        if key not in ("base", "keep", "drop", "reason"):
            raise UsageError(f"{path}: {key!r} is not base, keep, drop or reason")
    base = table.get("base", "mirror")
    if not isinstance(base, str) or base not in POLICIES:
        raise UsageError(f"{path}: base is one of {', '.join(POLICIES)}")
    keep, drop = (_listed(table.get(key, []), key, path) for key in ("keep", "drop"))
    if keep & drop:
        raise UsageError(f"{path}: both in keep and in drop: {', '.join(sorted(keep & drop))}")
    reason = str(table.get("reason", f"{base}, changed by a file"))
    name = Path(path).stem
    return replace(POLICIES[base], name=name, reason=reason, source=path, keep=keep, drop=drop)


def _listed(listed: object, key: str, path: str) -> frozenset[str]:
    if not isinstance(listed, list) or not all(isinstance(op, str) for op in listed):
        raise UsageError(f'{path}: {key} is a list of operators, as ["Softmax"]')
    return frozenset(listed)


@dataclass(frozen=True)
class Marks:
    """Steps named by the user: those that run once, and those that may run again.

    Source: `drop` is MXNet's attribute `force_mirroring`: it wins over the policy.  Whether a step
    then does run again is still decided, and applied only where that lowers the peak.
    """

    keep: frozenset[str] = frozenset()
    drop: frozenset[str] = frozenset()


def marks(program: Program, keep: Sequence[str] = (), drop: Sequence[str] = ()) -> Marks:
    """The forward steps with their own name, or that of an output, matched by a glob.

    Raises:
        UsageError: a glob matches no forward step, or a step is to be kept and dropped.
    """
    kept = [name for glob in keep for name in _matching(program, glob, "--keep")]
    dropped = [name for glob in drop for name in _matching(program, glob, "--drop")]
    both = sorted(set(kept) & set(dropped))
    if both:
        raise UsageError(f"both kept and dropped: {some(both)}")
    return Marks(frozenset(kept), frozenset(dropped))


def _matching(program: Program, glob: str, flag: str) -> list[str]:
    forward = [s for s in program.steps if s.stage == "forward"]
    names = {s.name: [s.name, *(program.values[v].name for v in s.writes)] for s in forward}
    found = [s for s, called in names.items() if any(fnmatchcase(n, glob) for n in called)]
    if not found:
        known = (n for called in names.values() for n in called)
        raise UsageError(f"{flag} {glob}: no forward value or node has that name"
                         f"{suggest(glob, known)}")  # fmt: skip
    return found
