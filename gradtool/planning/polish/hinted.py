"""A constraint model whose every variable is hinted with the value that it has now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SETTINGS: Mapping[str, Any] = {
    "num_workers": 1,
    "random_seed": 0,
    "catch_sigint_signal": False,  # Ctrl-C is for whoever called
    "cp_model_probing_level": 0,  # in models this small presolve would take longer than the search
    "symmetry_level": 0,
    "max_presolve_iterations": 1,
}


class Hinted:
    """A CP-SAT model of slots from 0 to `slots`; `model` takes the constraints."""

    def __init__(self, slots: int) -> None:
        from ortools.sat.python import cp_model

        self.model: Any = cp_model.CpModel()
        self.slots = slots
        self._solver: Any = None

    def literal(self, *, now: bool) -> Any:
        """A variable that is true or false."""
        literal = self.model.new_bool_var("")
        self.model.add_hint(literal, now)
        return literal

    def slot(self, now: int) -> Any:
        """A number of slots."""
        return self.number(0, self.slots, now)

    def number(self, least: int, most: int, now: int) -> Any:
        """A whole number between two others."""
        number = self.model.new_int_var(least, most, "")
        self.model.add_hint(number, now)
        return number

    def constant(self, number: int) -> Any:
        """What cannot be anything else."""
        return self.model.new_constant(number)

    def minimize(self, goal: Any, time: float) -> bool:
        """Whether some solution was found within a deterministic time; `value` then knows it.

        One worker looks for it, so that it is the same everywhere.
        """
        from ortools.sat.python import cp_model

        self.model.minimize(goal)
        self._solver = cp_model.CpSolver()
        for name, setting in _SETTINGS.items():
            setattr(self._solver.parameters, name, setting)
        self._solver.parameters.max_deterministic_time = time
        return self._solver.solve(self.model) in {cp_model.OPTIMAL, cp_model.FEASIBLE}

    def value(self, variable: Any) -> int:
        """The value of a variable in the solution."""
        return int(self._solver.value(variable))
