"""A constraint model whose every variable is hinted with the value that it has now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

_SETTINGS: Mapping[str, Any] = {
    "num_workers": 1,
    "random_seed": 0,
    "catch_sigint_signal": False,  # Ctrl-C is for whoever called
    "cp_model_probing_level": 0,  # in models this small presolve would take longer than the search
    "symmetry_level": 0,
    "max_presolve_iterations": 1,
}
_SOON = 0.1  # seconds within which a search that is to stop is told so


class Hinted:
    """A CP-SAT model of slots from 0 to `slots`; `model` takes the constraints.

    `proven` says whether the solution found is an optimum.
    """

    def __init__(self, slots: int) -> None:
        from ortools.sat.python import cp_model

        self.model: Any = cp_model.CpModel()
        self.slots = slots
        self.proven = False
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

    def minimize(self, goal: Any, time: float, stop: Callable[[], bool]) -> bool:
        """Whether some solution was found within a deterministic time; `value` then knows it.

        One worker looks for it, so that it is the same everywhere, unless `stop` ends that early.
        """
        from ortools.sat.python import cp_model

        self.model.minimize(goal)
        self._solver = cp_model.CpSolver()
        for name, setting in _SETTINGS.items():
            setattr(self._solver.parameters, name, setting)
        self._solver.parameters.max_deterministic_time = time
        status = self._solve(stop)
        self.proven = status == cp_model.OPTIMAL
        return self.proven or status == cp_model.FEASIBLE

    def _solve(self, stop: Callable[[], bool]) -> Any:
        """CP-SAT's status, from a thread: in this one, no signal would arrive before its end."""
        with ThreadPoolExecutor(max_workers=1) as pool:
            status = pool.submit(self._solver.solve, self.model)
            try:
                while wait([status], _SOON).not_done:
                    if stop():
                        self._solver.stop_search()
            finally:
                self._end(status)
            return status.result()

    def _end(self, status: Future[Any]) -> None:
        """End a search that an interrupt has left; it may not hear the first call to stop."""
        while not status.done():
            self._solver.stop_search()
            wait([status], _SOON)

    def value(self, variable: Any) -> int:
        """The value of a variable in the solution."""
        return int(self._solver.value(variable))
