"""The position of a training, and its form in a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradtool.errors import UsageError
from gradtool.io.documents import is_number, is_whole
from gradtool.training.sampler import Place
from gradtool.training.schedules import Plateau


@dataclass(frozen=True)
class Best:
    """The evaluation that was best so far: its `step`, and the `value` of the first metric."""

    step: int
    value: float


def better(best: Best | None, value: float | None, *, step: int, higher: bool) -> Best | None:
    """The better one of the best evaluation so far and one of now, if there is any."""
    if value is None or not math.isfinite(value):
        return best
    sign = -1 if higher else 1
    return Best(step, value) if best is None or sign * value < sign * best.value else best


@dataclass(frozen=True)
class Progress:
    """The position of a training.

    `stale` are evaluations since the best one, `skipped` the steps that updated nothing; `scale`
    and `steady` are the dynamic loss scale, and how many steps it has held.  With `due`, the
    weights of this step are to be evaluated yet.  `plateau` is where the rate stands by
    evaluations, where it goes by them.  `best_ema` is the best evaluation of the means of weights;
    `tables` are the tables of counts of an evaluation of this step, by metric.
    """

    step: int = 0
    place: Place = field(default_factory=Place)
    best: Best | None = None
    stale: int = 0
    skipped: int = 0
    scale: float = 1.0
    steady: int = 0
    due: bool = False
    plateau: Plateau | None = None
    best_ema: Best | None = None
    tables: Mapping[str, list[list[int]]] = field(default_factory=dict)

    @property
    def kept(self) -> set[int]:
        """The steps whose weights are best."""
        return {best.step for best in (self.best, self.best_ema) if best is not None}

    def is_done(self, steps: int | None, epochs: int | None, patience: int | None) -> bool:
        """Whether a training of so many steps or epochs has none left."""
        return (
            (steps is not None and self.step >= steps)
            or (epochs is not None and self.place.epoch >= epochs)
            or self.is_stale(patience)
        )

    def is_stale(self, patience: int | None) -> bool:
        """Whether the best evaluation is too long ago."""
        return patience is not None and self.stale >= patience


def progress_of(path: Path, document: Mapping[str, Any]) -> Progress:
    """The position recorded in a checkpoint's document.

    Raises:
        UsageError: it does not say all of it.
    """
    place, plateau, tables = (document.get(key) for key in ("place", "plateau", "tables"))
    best, best_ema = (document.get(key) for key in ("best", "best_ema"))
    whole, due = ("step", "stale", "skipped", "steady"), document.get("due", False)
    if not (
        isinstance(due, bool)
        and all(is_whole(document.get(key)) for key in whole)
        and is_number(document.get("scale"))
        and isinstance(place, dict)
        and all(is_whole(place.get(key)) for key in ("epoch", "batch"))
        and all(each is None or _is_best(each) for each in (best, best_ema))
        and (tables is None or _are_tables(tables))
        and (plateau is None or _is_plateau(plateau))
    ):
        raise UsageError(f"{path}: is damaged: it does not say where training stands")
    return Progress(
        place=Place(place["epoch"], place["batch"]),
        best=_best(best),
        best_ema=_best(best_ema),
        tables=tables or {},
        scale=float(document["scale"]),
        due=due,
        plateau=None if plateau is None else Plateau(**plateau),
        **{key: document[key] for key in whole},
    )


def _best(found: Any) -> Best | None:
    return None if found is None else Best(found["step"], float(found["value"]))


def _is_best(found: object) -> bool:
    return isinstance(found, dict) and is_whole(found.get("step")) and is_number(found.get("value"))


def _are_tables(found: object) -> bool:
    return isinstance(found, dict) and all(
        isinstance(table, list)
        and all(
            isinstance(row, list) and len(row) == len(table) and all(map(is_whole, row))
            for row in table
        )
        for table in found.values()
    )


def _is_plateau(found: object) -> bool:
    return (
        isinstance(found, dict)
        and found.keys() == vars(Plateau(0.0)).keys()
        and is_number(found["rate"])
        and (found["best"] is None or is_number(found["best"]))
        and is_whole(found["bad"])
        and is_whole(found["cooling"])
    )
