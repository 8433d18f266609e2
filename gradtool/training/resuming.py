"""Options that a resumed training may change, and those fixed by its run.

A checkpoint is of a training: `recipe`, `data` and `model`.  Of the recipe the rates and the length
may change between two runs, as may how often is evaluated.  Whichever of these nobody names is that
of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gradtool.errors import UsageError
from gradtool.io.documents import is_number, is_text, is_whole
from gradtool.training.options import TrainOptions, different

Of = Mapping[str, Any]
LENGTH = ("steps", "epochs", "patience")
FREE = ("lr", "schedule", "warmup", *LENGTH, "every")


def _facts(of: Of) -> dict[str, Any]:
    """The changeable facts, by option."""
    recipe = of.get("recipe")
    recipe = recipe if isinstance(recipe, Mapping) else {}
    evaluation = recipe.get("evaluation")
    every = evaluation.get("every") if isinstance(evaluation, Mapping) else None
    length = recipe.get("length")
    length = length if isinstance(length, Mapping) else {}
    rates = {name: recipe.get(name) for name in ("lr", "schedule", "warmup")}
    return rates | {name: length.get(name) for name in LENGTH} | {"every": every}


def _fixed(of: Of) -> dict[str, Any]:
    """The fixed facts."""
    recipe = of.get("recipe")
    if not isinstance(recipe, Mapping):
        return dict(of)
    kept = {n: v for n, v in recipe.items() if n not in (*FREE, "length")}
    evaluation = kept.get("evaluation")
    if isinstance(evaluation, Mapping):
        kept["evaluation"] = {n: v for n, v in evaluation.items() if n != "every"}
    return {**of, "recipe": kept}


def completed(options: TrainOptions, of: Of) -> TrainOptions:
    """Options completed by those of a run.

    Raises:
        UsageError: the run has none of that kind, or its schedule is code, which has to be named.
    """
    found = _facts(of)
    if options.schedule is None and is_text(found["schedule"]) and ":" in found["schedule"]:
        raise UsageError(
            f"the schedule of the run is code, {found['schedule']}: name it with --schedule"
        )
    if options.steps is not None or options.epochs is not None:
        found |= {"steps": None, "epochs": None}
    kinds: dict[str, Callable[[object], bool]] = {"lr": is_number, "schedule": is_text}
    for name, value in found.items():
        if value is not None and not kinds.get(name, is_whole)(value):
            raise UsageError(f"a checkpoint is damaged: it has no {name} that is one")
    kept = {n: v for n, v in found.items() if v is not None and getattr(options, n) is None}
    made = replace(options, **kept)
    made.require()
    return made


def unlike(before: Of, now: Of) -> str:
    """Forbidden differences of two trainings; empty where nothing does."""
    return different(_fixed(before), _fixed(now))


def changes(before: Of, now: Of) -> str:
    """Allowed differences of two trainings, for people: `lr 0.001 (0.01 before)`; or nothing."""
    old, new = _facts(before), _facts(now)
    said = [
        f"{name} {_said(new[name])} ({_said(old[name])} before)"
        for name in FREE
        if old[name] != new[name]
    ]
    return ", ".join(said)


def _said(found: Any) -> str:
    return "none" if found is None else f"{found}"
