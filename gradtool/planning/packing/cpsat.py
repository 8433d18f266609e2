"""Packing by OR-tools' CP-SAT, from the extra `solver`."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

from gradtool.planning.packing.problem import Numbers, Problem

MOST = 1000


def available(problem: Problem) -> bool:
    """Whether OR-tools is installed and the problem is of a size that it can take."""
    return len(problem.size) <= MOST and find_spec("ortools") is not None


def improve(
    problem: Problem, offsets: Numbers, bound: int, time: float
) -> tuple[Numbers | None, int]:
    """A smaller packing than `offsets`, if one is found, and a lower bound, at least `bound`.

    `time` is CP-SAT's deterministic time.  Rectangles don't overlap, and each step is a cumulative
    resource; one worker, so that the answer is the same everywhere.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    size = int((offsets + problem.size).max())
    height = model.new_int_var(bound, size - 1, "height")
    starts, across, up = [], [], []
    for i, extent in enumerate(problem.size.tolist()):
        begin, width = int(problem.start[i]), int(problem.stop[i] - problem.start[i])
        start = model.new_int_var(0, size - 1 - extent, f"start{i}")
        model.add(start + extent <= height)
        model.add_hint(start, min(int(offsets[i]), size - 1 - extent))
        starts.append(start)
        up.append(model.new_fixed_size_interval_var(start, extent, f"up{i}"))
        across.append(model.new_fixed_size_interval_var(begin, width, f"across{i}"))
    model.add_no_overlap_2d(across, up)
    model.minimize(height)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = time
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return None, size
    proved = max(bound, round(solver.best_objective_bound))
    if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        return None, proved
    return np.array([solver.value(s) for s in starts], dtype=np.int64), proved
