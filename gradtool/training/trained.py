"""Results of a training: its weights, read and written."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gradtool.errors import UsageError
from gradtool.io.stored import Reading
from gradtool.session import Session
from gradtool.training.checkpoints import Checkpoint, Folder
from gradtool.training.data import CLASSES
from gradtool.training.loop import Loop
from gradtool.training.progress import Progress

Array = np.ndarray[Any, Any]


class Trained:
    """The weights of the last fit, and of its best evaluations."""

    _session: Session | None
    _folder: Folder | None
    _loop: Loop | None
    _means: Mapping[str, Array]
    _notes: Mapping[str, str]

    @property
    def session(self) -> Session:
        """The session that the steps ran in.

        Raises:
            UsageError: nothing was fitted yet, or the trainer is closed.
        """
        if self._session is None:
            raise UsageError("nothing is trained yet: call fit")
        return self._session

    @property
    def classes(self) -> dict[str, list[str]]:
        """The names of classes by input, in the order of their numbers, where data name them."""
        found: dict[str, list[str]] = json.loads(self._notes.get(CLASSES, "{}"))
        return found

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        best: bool = False,
        averages: bool = False,
        force: bool = False,
    ) -> tuple[Path, int]:
        """Write the model with the weights of the last step; see `gradtool.Session.save`.

        Args:
            path: the file.
            best: write the weights of the best evaluation, of averages that of the averages.
            averages: write the means that the graph keeps in place of their parameters.
            force: replace a file that is there.

        Raises:
            UsageError: nothing is trained, the best weights are not kept, or the output exists.
        """
        session = self.session
        values, notes = self._values(best=best, averages=averages), self._notes
        return session.save(path, averages=averages, values=values, force=force, metadata=notes)

    def weights(self, *, best: bool = False, averages: bool = False) -> dict[str, Array]:
        """The arrays that `save` would write, by name: parameters, statistics and adapters.

        Args:
            best: those of the best evaluation.
            averages: the means that the graph keeps, in place of their parameters.

        Raises:
            UsageError: nothing is trained, the best weights are not kept, or there are no averages.
        """
        held = self._values(best=best, averages=averages)
        return self.session.weights(held, averages=averages)

    @property
    def lost(self) -> int | None:
        """The number of the last step, if its weights are in no checkpoint; else None."""
        loop = self._loop
        if loop is None or loop.progress.step == loop.begun or loop.is_saved:
            return None
        return loop.progress.step

    def save_adapter(
        self, path: str | os.PathLike[str], *, best: bool = False, force: bool = False
    ) -> list[tuple[Path, int]]:
        """Write the adapters for themselves; see `gradtool.Session.save_adapter`.

        Args:
            path: the file of the model.
            best: write those of the best evaluation.
            force: replace files that are there.

        Raises:
            UsageError: there are none, nothing is trained, the best weights are not kept, or an
                output exists.
        """
        return self.session.save_adapter(path, values=self._values(best=best), force=force)

    def _values(self, *, best: bool, averages: bool = False) -> Mapping[str, np.ndarray[Any, Any]]:
        if best:
            return Reading(self._best(averages=averages).arrays)
        return {**self.session.values(copy=False), **self._means}

    def _best(self, *, averages: bool) -> Checkpoint:
        progress = Progress() if self._loop is None else self._loop.progress
        found = (progress.best_ema if averages else None) or progress.best
        if found is None or self._folder is None:
            raise UsageError("the best weights are kept by a fit with evaluate and run")
        return self._folder.load(found.step)
