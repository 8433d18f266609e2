"""Sides of a comparison: a graph, a plan, a file that tells of one."""

from __future__ import annotations

import os

from gradtool.comparison import Snapshot
from gradtool.comparison.snapshots import of_plan, read_snapshots
from gradtool.errors import UsageError
from gradtool.exec.run import planned
from gradtool.operators.kernel_sets import Asked
from gradtool.planning.plan import Plan
from gradtool.workloads.rewritten import Graph, Rewritten, model_of

Side = Graph | Plan | str | os.PathLike[str]


def snapshot_of(side: Side, name: str, kernels: Asked = "auto") -> Snapshot:
    """The snapshot of a side; a file names itself, a graph is planned for `kernels`.

    Raises:
        UsageError: sizes of a graph are open, or a file cannot be read or tells of several plans.
    """
    if isinstance(side, str | os.PathLike):
        found = read_snapshots(os.fspath(side))
        if len(found) != 1:
            raise UsageError(f"{side}: holds {len(found)} plans; compare them one by one")
        return found[0]
    if isinstance(side, Rewritten):
        return of_plan(name, side.plan, side.kept)
    if not isinstance(side, Graph | Plan):
        kind = type(side).__name__
        raise UsageError(f"compare takes a graph, a Plan or the path of a file, not {kind}")
    plan = side if isinstance(side, Plan) else planned(model_of(side), {}, kernels)
    return of_plan(name, plan, plan)
