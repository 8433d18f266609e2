"""Accumulated gradients of steps, and the updates by them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from gradtool.errors import UsageError
from gradtool.exec.binding import Binding
from gradtool.exec.bound_model import Resident
from gradtool.exec.shared_arena import Store
from gradtool.graph.training_info import TrainingInfo
from gradtool.session.feeding import Batch
from gradtool.session.held import StateAccess


class Sums:
    """The half of a step that updates, and its accumulated gradients."""

    def __init__(self, updates: Resident, store: Store) -> None:
        self.updates = updates
        self._store = store
        self._is_expected = False

    def expect(self) -> None:
        """Make room for the updates when the next plan is bound: the arena then stays there."""
        if not self._is_expected:
            self._is_expected = True
            self.updates.plan_ahead(bind=False)

    def feed(self, batch: Mapping[str, Any], scale: float) -> Binding:
        """The updates, fed: each sum counts `scale` times."""
        name = TrainingInfo.of(self.updates.model).scale or ""
        return self.updates.feed({**batch, name: scale})

    def forget(self) -> None:
        """Set all of them to zero."""
        for held in self._held().values():
            held.fill(0)

    def are_finite(self) -> bool:
        """Whether none has an infinity or a NaN."""
        computable = self._store.device.computable
        return all(
            math.isfinite(float(end))
            for held in self._held().values() if held.size
            for end in (computable(held).min(), computable(held).max())
        )  # fmt: skip

    def _held(self) -> dict[str, Any]:
        info = TrainingInfo.of(self.updates.model)
        names = {**info.gradients, **{rows: rows for rows in info.rows.values()}}
        found = {name: self._store.value(total) for name, total in names.items()}
        return {name: held for name, held in found.items() if held is not None}


class Updating(StateAccess):
    """Updates by the sums of gradients that the steps of a session add to."""

    _sums: Sums | None
    _run: Callable[[Callable[[], None]], float]

    def update(self, batch: Batch | None = None, *, scale: float = 1.0) -> None:
        """Update by the sums of gradients; they are zero afterwards.

        Args:
            batch: the other inputs of the updates, by name: a learning rate.
            scale: a factor of each sum.

        Raises:
            MissingData: an input of the updates is absent.
            UsageError: the session was opened without updates, or is closed.
        """
        binding = self._require_sums().feed(batch or {}, scale)
        self._run(binding.enter().step)
        binding.outlets.carry()
        self.forget_gradients()

    def forget_gradients(self) -> None:
        """Set the sums of gradients to zero, whatever they are.

        Raises:
            UsageError: the session was opened without updates, or is closed.
        """
        self._require_sums().forget()

    def gradients_are_finite(self) -> bool:
        """Whether no sum of gradients has an infinity or a NaN.

        Raises:
            UsageError: the session was opened without updates, or is closed.
        """
        return self._require_sums().are_finite()

    def _require_sums(self) -> Sums:
        self._require_open()
        if self._sums is None:
            raise UsageError("the steps of this session update as they go: there are no sums")
        return self._sums
