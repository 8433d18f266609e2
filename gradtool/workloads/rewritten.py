"""A training graph in the order of a plan, apart from what makes one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from gradtool.workloads.training import TrainingGraph

if TYPE_CHECKING:
    from gradtool.planning.plan import Plan
    from gradtool.planning.search.proof import Proof
    from gradtool.workloads.planned import Planned
    from gradtool.workloads.workload import Workload


@dataclass(frozen=True)
class Rewritten:
    """A training graph in the order of a plan, with clones of what is computed again.

    `proof` has the extra work, bound and gap of a plan within a budget.

    Attributes:
        model: the graph, whose sizes are as open as they were.
        plan: its plan, for the sizes in `plan.program.dims`.
        kept: the plan that keeps everything, for the same sizes.
        extra_flops: what is computed beyond that; None if an operator of unknown cost runs again.
        notes: lines for people.
        work: the graph that was planned.
        planned: its plan with the schedule.

    Example:
        training = gt.grad(gt.load("samples/cnn.onnx", dims={"batch": 8}))
        less = gt.recompute(training, "sqrt")
        less.plan.peak, less.kept.peak, less.extra_flops  # bytes, bytes, FLOPs
    """

    model: ir.Model
    plan: Plan
    kept: Plan
    extra_flops: int | None
    notes: tuple[str, ...]
    work: Workload
    planned: Planned

    @property
    def proof(self) -> Proof | None:
        """The bounds proven by the search for the plan."""
        return self.planned.proof

    def __repr__(self) -> str:
        saved = 1 - self.plan.peak / max(self.kept.peak, 1)
        return (
            f"Rewritten({self.model.graph.name!r}, plan {self.plan.name!r}, "
            f"peak {self.plan.peak} bytes, {saved:.1%} saved)"
        )

    def _repr_html_(self) -> str:
        from gradtool.text.table import facts
        from gradtool.text.units import format_bytes

        found = {
            "plan": self.plan.name,
            "peak": format_bytes(self.plan.peak),
            "keeping everything": format_bytes(self.kept.peak),
            "extra FLOPs": self.extra_flops,
        }
        return facts(f"{self.model.graph.name} rewritten", found)


Graph = TrainingGraph | Rewritten | ir.Model


def model_of(graph: Graph) -> ir.Model:
    """The model inside a training graph, or the model itself."""
    return graph if isinstance(graph, ir.Model) else graph.model
