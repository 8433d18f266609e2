"""The losses and evaluations of a training that has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradtool.training.checkpoints import Folder
from gradtool.training.fit import Fit
from gradtool.training.loop import End
from gradtool.training.progress import Best, Progress


@dataclass(frozen=True)
class History:
    """The losses and evaluations of a training, and how it ended.

    Attributes:
        step: the last step that was taken, counted from 1 and over runs that were resumed.
        losses: those of the steps that were taken now.
        evaluations: pairs of a step and its numbers by name.
        best: the step of the best evaluation, where there was one.
        skipped: how many steps were left out, for gradients that are not finite.
        ended: why it did: `steps`, `patience` or `interrupted`.
        fit: how a memory was kept to, where one was.
        best_ema: the step of the best evaluation of the means of weights, where there are some.
        tables: by the step of the last evaluation and of the best, tables of counts by metric.

    Example:
        with gt.Trainer("samples/cnn.onnx", steps=2, batch=4) as trainer:
            history = trainer.fit("samples/cnn.npz")
        history.losses, history.ended
    """

    step: int
    losses: tuple[float, ...]
    evaluations: tuple[tuple[int, dict[str, float]], ...]
    best: Best | None
    skipped: int
    ended: End
    fit: Fit | None = None
    best_ema: Best | None = None
    tables: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)

    def __repr__(self) -> str:
        last = f", loss {self.losses[-1]:.4g}" if self.losses else ""
        return f"History({self.step} steps{last}, {len(self.evaluations)} evaluations)"

    def _repr_html_(self) -> str:
        from gradtool.text.table import facts

        found = {
            "steps": self.step, "last loss": f"{self.losses[-1]:.6g}" if self.losses else None,
            "evaluations": len(self.evaluations), "skipped": self.skipped, "ended": self.ended,
        }  # fmt: skip
        if self.evaluations:
            step, last = self.evaluations[-1]
            found |= {f"{name} at {step}": f"{value:.6g}" for name, value in last.items()}
        return facts("training", found)


def tables_of(
    progress: Progress, folder: Folder | None
) -> dict[int, dict[str, np.ndarray[Any, Any]]]:
    """The tables of an evaluation of now, and of the best one, which its checkpoint has."""
    best = progress.best
    found = {progress.step: progress.tables}
    if progress.tables and best is not None and folder is not None and best.step not in found:
        found[best.step] = folder.tables(best.step)
    return {
        step: {name: np.array(table) for name, table in tables.items()}
        for step, tables in found.items()
        if tables
    }
