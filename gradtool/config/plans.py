"""The `plan` of a case: a name, a file, or a table that says what `gradtool recompute` would."""

from __future__ import annotations

from typing import Any

from gradtool.check.choice import Choice
from gradtool.config.tables import Table
from gradtool.errors import UsageError
from gradtool.text import suggest

KEYS = ("strategy", "budget", "max-slowdown", "checkpoints", "optimizer", "seed", "time-limit",
        "solver", "policy", "keep", "drop")  # fmt: skip
MIRROR = ("policy", "keep", "drop")
SUFFIX = ".json"


def plan_of(table: Table) -> Choice:
    """The plan under `plan`; keeping everything by default.

    Raises:
        UsageError: it is no plan, or says two things that do not go together.
    """
    given = table.found.get("plan", "keep")
    if isinstance(given, dict):
        return _from_table(table.table("plan", KEYS))
    text = table.text("plan", "keep")
    if text.endswith(SUFFIX):
        return Choice("file", {"plan": text})
    from gradtool.strategies import STRATEGIES

    if text not in STRATEGIES:
        hint = suggest(text, STRATEGIES)
        table.refuse("plan", f"one of {', '.join(STRATEGIES)}, a file NAME.json or a table{hint}")
    return Choice(text, {"strategy": text})


def _from_table(table: Table) -> Choice:
    if any(key in table for key in MIRROR):
        return _mirror(table)
    asked: dict[str, Any] = {}
    for key in ("strategy", "budget", "max-slowdown", "optimizer", "solver"):
        if key in table:
            whole = key == "budget" and isinstance(table.found[key], int)
            value = table.size(key) if whole else table.text(key, "")
            asked[key.replace("-", "_")] = value
    if "checkpoints" in table:
        asked["checkpoints"] = table.texts("checkpoints")
    if "seed" in table:
        asked["seed"] = table.size("seed", least=0)
    if "time-limit" in table:
        asked["time_limit"] = _seconds(table)
    try:
        return _checked(Choice(_said(asked), asked))
    except UsageError as error:
        raise UsageError(f"{table.where}: {error}") from error


def _checked(choice: Choice) -> Choice:
    """The choice. Raises UsageError if what it asks for cannot be planned."""
    from gradtool.asked import Asked

    Asked(**choice.asked).plans()
    return choice


def _mirror(table: Table) -> Choice:
    """Mirroring with a policy; nothing else goes with that."""
    if table.text("strategy", "mirror") != "mirror":
        table.refuse("strategy", "mirror, or leave out policy, keep and drop")
    other = next((key for key in table.found if key not in ("strategy", *MIRROR)), None)
    if other is not None:
        raise UsageError(f"{table.where}: {other} and mirroring do not go together")
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
    from gradtool.budgets.limits import parse_seconds

    try:
        return parse_seconds(table.text("time-limit", ""))
    except UsageError as error:
        raise UsageError(f"{table.where}: time-limit: {error}") from error


def _said(asked: dict[str, Any]) -> str:
    """What people call the plan: `budget 60%`, `min-cut slowdown 20%`, `checkpoints`."""
    words = {"budget": "budget", "max_slowdown": "slowdown", "optimizer": "with", "seed": "seed",
             "solver": "solver"}  # fmt: skip
    parts = [asked["strategy"]] if "strategy" in asked else []
    parts += [f"{words[key]} {asked[key]}" for key in words if key in asked]
    if "checkpoints" in asked:
        parts.append(f"checkpoints {','.join(asked['checkpoints'])}")
    return " ".join(parts)
