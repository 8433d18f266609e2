"""Measurements of `gradtool run`, node by node: a profile, a trace, a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx_ir as ir

    from gradtool.commands.output import Reporter
    from gradtool.exec.step_costs import StepCosts
    from gradtool.operators.kernel_sets import Kernels


def profile(
    reporter: Reporter, path: str, training: ir.Model, arrays: Any, device: str, kernels: Kernels,
    options: Mapping[str, Any],
) -> None:  # fmt: skip
    """Write the time of each node, and show it by operator."""
    from gradtool.exec import timing
    from gradtool.exec.feeds import sizes
    from gradtool.exec.machine_peak import reach
    from gradtool.operators.kernel_sets import of_nodes
    from gradtool.program import profile as files
    from gradtool.reports.roofline import by_operator, roofline_table
    from gradtool.workloads.plans import workload

    work = workload(training, sizes(training, arrays), of_nodes(kernels))
    repeats = max(options["repeat"], files.REPEATS)
    found = timing.profile(work, arrays, repeats, kernels, device)
    files.save(found, path, force=options["force"])
    if options["form"] == "table":
        steps, reached = work.apart.steps, None if kernels == "cupy" else reach(kernels)
        seconds = [found.nodes[step.name].seconds for step in steps]
        shown = by_operator(steps, seconds, reached)
        reporter.table(roofline_table(shown, reached), "table")


def costs(model: ir.Model, arrays: Any, device: str, kernels: Kernels, repeat: int) -> StepCosts:
    """Measured costs of each step of a run."""
    from gradtool.exec.step_costs import step_costs
    from gradtool.program.profile import REPEATS

    repeats = max(repeat, REPEATS)
    return step_costs(model, arrays, device=device, kernels=kernels, repeats=repeats)


def drawn(options: Mapping[str, Any]) -> dict[str, Callable[[StepCosts, str, Any], str]]:
    """Drawings of the steps of a run, by file."""
    from gradtool.reports.roofline_page import roofline_page
    from gradtool.reports.trace import measured_trace

    def trace(found: StepCosts, name: str, result: Any) -> str:
        return measured_trace(found, name, result.measurement)

    def page(found: StepCosts, name: str, _result: Any) -> str:
        program = found.plan.program
        told = f"median of {found.repeats} steps on {program.kernels} kernels, once warm"
        return roofline_page(name, told, program.steps, found.seconds, found.reach)

    ways = {"trace": trace, "html": page}
    return {options[what]: way for what, way in ways.items() if options[what] is not None}
