"""From a case to its metrics: load, differentiate, plan, and perhaps run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradtool.check.cases import Case
from gradtool.check.choice import Choice
from gradtool.comparison.metrics import METRICS, Metrics
from gradtool.errors import UsageError

if TYPE_CHECKING:
    import onnx_ir as ir

    from gradtool.workloads.planned import Planned
    from gradtool.workloads.workload import Workload


def measure(case: Case, *, run: bool = False) -> Metrics:
    """The metrics of a case; with `run` also those of a step that runs on the CPU.

    Raises:
        GradtoolError: the model cannot be read, differentiated or planned, or sizes are open.
    """
    from gradtool import io
    from gradtool.comparison.footprint import operators_of, tensors_of, why_kept
    from gradtool.planning.breakdown import unsized
    from gradtool.workloads.plans import workload

    training, plan, notes = _training(case)
    symbols = io.symbols(training)
    if symbols:
        listed = ", ".join(f"{name} = 1" for name in symbols)
        raise UsageError(f"sizes are open: give them in the case, as in dims = {{ {listed} }}")
    work = workload(training, kernels=case.planned_for)
    found = plan.strategy(case.folder)(work)
    tensors, left_out = tensors_of(found.plan)
    values = _planned(work, found)
    if run:
        values |= _measured(work, found)
    cut_short = found.proof is not None and found.proof.cut_short
    if cut_short:
        notes.append("the plan was cut short by time: it may be another one elsewhere")
    if values.get("extra-flops") is None:
        notes.append("extra-flops: not known, an operator of unknown cost runs again")
    if counts := unsized(work.program):
        listed = ", ".join(f"{op} ({number})" for op, number in counts.items())
        notes.append(f"not counted, their sizes depend on data: results of {listed}")
    return Metrics(
        values={name: value for name in METRICS if (value := values.get(name)) is not None},
        tensors=tensors,
        operators=operators_of(found.plan),
        left_out=left_out,
        kept=why_kept(work, found, tensors),
        notes=tuple(notes),
        cut_short=cut_short,
    )


def _training(case: Case) -> tuple[ir.Model, Choice, list[str]]:
    """The training graph of a case, its plan, and its warnings.

    A forward model gets the updates of the plan's optimizer, as `gradtool recompute` gives it; the
    budget of a model that holds its gradients is for the state as well.
    """
    from gradtool.graph.stages import require_no_updates
    from gradtool.passes.second_order import is_training_graph
    from gradtool.workloads.grad_options import GradOptions
    from gradtool.workloads.opening import load
    from gradtool.workloads.training import training_graph

    loaded = load(
        case.path, dims=case.dims, shapes=case.shapes, batch=case.batch, values=case.values,
        keep_cache=case.keep_cache,
    )  # fmt: skip
    if is_training_graph(loaded) and not {"loss", "head_grads"} & case.gradient.keys():
        if case.plan.optimizer != "none":
            require_no_updates(loaded)
        return loaded, case.plan, []
    options = GradOptions(**case.differentiated, optimizer=case.plan.optimizer)
    made = training_graph(loaded, options)
    return made.model, case.plan.without_optimizer(), list(made.warnings)


def _planned(work: Workload, found: Planned) -> dict[str, int | None]:
    from gradtool.comparison.footprint import region_peaks
    from gradtool.planning.breakdown import activation_bytes
    from gradtool.workloads.plans import extra_flops, total_flops

    plan = found.plan
    return {
        **region_peaks(plan),
        "peak": plan.peak,
        "total": plan.total,
        "load": plan.peak_live,
        "activations": activation_bytes(plan),
        "flops": total_flops(plan.program),
        "extra-flops": extra_flops(plan, work.kept),
        "nodes": len(plan.program.steps),
        "recomputed": sum(step.stage == "recompute" for step in plan.program.steps),
    }


def _measured(work: Workload, found: Planned) -> dict[str, int | None]:
    """The measured bytes of a step on the device of its kernels, with random inputs."""
    from gradtool.exec import inputs
    from gradtool.exec.run import execute, home
    from gradtool.ops.shared.runtime_limits import limited
    from gradtool.workloads.plans import write
    from gradtool.workloads.run_options import RunOptions

    model = write(work, found)
    with limited(None, None):
        drawn, kernels = inputs.random(model, 0), work.kernels
        options = RunOptions(device=home(kernels), kernels=kernels, measure=True)
        result = execute(model, drawn, options)
    if result.measurement is None:
        return {}
    high = result.measurement.high_water
    return {"measured-arena": high, "measured-peak": high + result.measurement.outside}
