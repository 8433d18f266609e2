"""The `plan` of a case: a name, a file, or a table of the options of `gradtool recompute`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from gradtool.check.choice import Choice
from gradtool.check.config.tables import Table
from gradtool.errors import DeviceError, UsageError
from gradtool.text.words import suggest
from gradtool.workloads.names import PLANS, current
from gradtool.workloads.options import Option, options_of
from gradtool.workloads.recompute_options import RecomputeOptions

# A plan in a file is a text, not a table; times and their files are of one machine, and how far a
# proof gets as well.
_ELSEWHERE = ("plan", "cost", "prove")
ASKED = {o.key: o for o in options_of(RecomputeOptions).values() if o.key not in _ELSEWHERE}
MIRROR = ("policy", "keep", "drop")
FORMER = ("solver",)  # keys that say nothing any more
KEYS = (*ASKED, *MIRROR, *FORMER)
SUFFIX = ".json"


def plan_of(table: Table) -> Choice:
    """The plan under `plan`; keeping everything by default.

    Raises:
        UsageError: it is no plan, or says two things that cannot be combined.
    """
    given = table.found.get("plan", "keep")
    if isinstance(given, dict):
        return _from_table(table.table("plan", KEYS))
    text = table.text("plan", "keep")
    if text.endswith(SUFFIX):
        return Choice("file", {"plan": text})
    text = current(text)
    if text not in PLANS:
        hint = suggest(text, PLANS)
        table.refuse("plan", f"one of {', '.join(PLANS)}, a file NAME.json or a table{hint}")
    return Choice(text, {"strategy": text})


def _from_table(table: Table) -> Choice:
    if any(key in table for key in MIRROR):
        return _mirror(table)
    asked = {option.name: _read(table, option) for key, option in ASKED.items() if key in table}
    try:
        return _checked(Choice(_said(asked), asked))
    except UsageError as error:
        raise UsageError(f"{table.where}: {error}") from error


def _read(table: Table, option: Option) -> Any:
    """The value of a key, in its type."""
    key = option.key
    match option.kind:
        case "texts":
            return table.texts(key)
        case "whole":
            return table.size(key, least=option.least or 0)
        case "seconds":
            return _seconds(table)
        case "plan":
            return current(table.text(key, ""))
    if key == "budget" and isinstance(table.found[key], int):
        return table.size(key)
    return table.text(key, "")


def _checked(choice: Choice) -> Choice:
    """The choice, whether or not it can be planned here.

    Raises:
        UsageError: no machine can plan it.
    """
    with suppress(DeviceError):
        RecomputeOptions(**choice.without_optimizer().asked).plans()
    return choice


def _mirror(table: Table) -> Choice:
    """Mirroring with a policy; nothing else goes with that."""
    if table.text("strategy", "mirror") != "mirror":
        table.refuse("strategy", "mirror, or leave out policy, keep and drop")
    other = next((key for key in table.found if key not in ("strategy", *MIRROR)), None)
    if other is not None:
        raise UsageError(f"{table.where}: {other} cannot be combined with mirroring")
    policy = table.text("policy", "mirror")
    keep, drop = table.texts("keep"), table.texts("drop")
    _check_policy(policy, table)
    parts = [f"{key} {','.join(v)}" for key, v in (("keep", keep), ("drop", drop)) if v]
    named = "" if policy == "mirror" else " file" if policy.endswith(".toml") else f" {policy}"
    return Choice(" ".join([f"mirror{named}", *parts]), {}, policy, keep, drop)


def _check_policy(policy: str, table: Table) -> None:
    from gradtool.planning.recompute.policy import POLICIES

    if policy not in POLICIES and not policy.endswith(".toml"):
        hint = suggest(policy, POLICIES)
        table.refuse("policy", f"one of {', '.join(POLICIES)}, or a file NAME.toml{hint}")


def _seconds(table: Table) -> float:
    from gradtool.workloads.budgets.limits import parse_seconds

    try:
        return parse_seconds(table.text("time-limit", ""))
    except UsageError as error:
        raise UsageError(f"{table.where}: time-limit: {error}") from error


def _said(asked: dict[str, Any]) -> str:
    """The plan in words: `budget 60%`, `min-cut slowdown 20%`, `checkpoints`."""
    words = {"budget": "budget", "max_slowdown": "slowdown", "optimizer": "with", "seed": "seed"}
    parts = [asked["strategy"]] if "strategy" in asked else []
    parts += [f"{words[key]} {asked[key]}" for key in words if key in asked]
    if "checkpoints" in asked:
        parts.append(f"checkpoints {','.join(asked['checkpoints'])}")
    return " ".join(parts)
