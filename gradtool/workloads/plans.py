"""From a training graph to its memory plans, and from a plan to the model that carries it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType

import onnx_ir as ir

from gradtool.graph.training_info import record
from gradtool.operators.kernel_sets import LIBRARY, Asked, Kernels, of_nodes
from gradtool.planning.no_recompute import no_recompute
from gradtool.planning.plan import Plan
from gradtool.planning.recompute.mirror import Decision
from gradtool.planning.schedule import Schedule, replay
from gradtool.program import Program
from gradtool.program.declared import narrowed
from gradtool.program.flatten import flatten
from gradtool.program.native import made_for
from gradtool.shapes.inference import register_shapes
from gradtool.workloads.groups import labelled, marked, spread
from gradtool.workloads.names import chosen
from gradtool.workloads.planned import Arena, Planned
from gradtool.workloads.recompute import apply, group, mark, prepared
from gradtool.workloads.workload import Workload, sized

_STALLED = 3  # candidates by a line in a row that brought little


Strategy = Callable[[Workload], Planned]


def workload(
    model: ir.Model, dims: Mapping[str, int] | None = None, kernels: Asked = "numpy"
) -> Workload:
    """A training graph made ready to be planned for kernels; the model given is left as it is.

    Raises:
        UsageError: sizes are open that `dims` does not give, or an operator has no kernel.
    """
    return _of_sizes(prepared(model), dims or {}, chosen(kernels))


def workloads(
    model: ir.Model, dims: Mapping[str, int], symbol: str, kernels: Asked = "numpy"
) -> Callable[[int], Workload]:
    """A function from the size of a symbol to the `workload` of that size, made once for each.

    Raises:
        UsageError: as `workload`, when it is called.
    """
    made, known = prepared(model), chosen(kernels)
    return cache(lambda size: _of_sizes(made, {**dims, symbol: size}, known))


def grown(work: Workload, symbol: str) -> Callable[[int], Workload]:
    """A function from an open size of a graph to its `workload`.

    Raises:
        UsageError: as `workload`, when it is called.
    """

    def of(size: int) -> Workload:
        is_same = size == work.dims[symbol]
        return work if is_same else _of_sizes(work.model, {**work.dims, symbol: size}, work.kernels)

    return cache(of)


def _of_sizes(made: ir.Model, sizes: Mapping[str, int], kernels: Kernels) -> Workload:
    """The workload of a prepared graph."""
    register_shapes()
    dims = dict(sizes)
    model, known = sized(made, dims), MappingProxyType(dims)
    program = together = flatten(model, dims=dims, kernels=of_nodes(kernels))
    apart = None
    if kernels in LIBRARY:
        together = made_for(kernels, program)
        apart = labelled(program, together)
    return Workload(made, together, known, kernels, apart, _sized=model)


def of_form(work: Workload, model: ir.Model) -> Workload:
    """The workload of another form of a graph, of the same sizes, heard by the same listener."""
    return replace(_of_sizes(model, work.dims, work.kernels), listener=work.listener)


def form_of(work: Workload, found: Planned) -> Workload:
    """The form of a graph that the schedule of a plan is of."""
    return found.form or work


def planned(
    work: Workload,
    name: str,
    schedule: Schedule,
    *,
    notes: Sequence[str] = (),
    details: Sequence[str] = (),
    decision: Decision | None = None,
) -> Planned:
    """The plan of a schedule; the one of the file's own order is `Workload.kept`."""
    if _is_given(work, schedule.order):
        arena = Arena(lambda: work.kept, lambda: work.arenas.whole)
    else:
        arena = Arena(lambda: _plan(work, schedule), lambda: work.arenas.size(schedule.order))
    return Planned(name, arena, schedule, tuple(notes), decision, details=tuple(details))


def _is_given(work: Workload, order: Sequence[int]) -> bool:
    """Whether an order is that of the file."""
    return tuple(order) == tuple(range(len(work.program.steps)))


def _plan(work: Workload, schedule: Schedule) -> Plan:
    found = narrowed(replay(work.apart, spread(work, schedule)), work.apart.steps)
    return no_recompute(made_for(work.kernels, found))


def write(work: Workload, found: Planned) -> ir.Model:
    """The model of a workload in the order of a plan, with its clones."""
    form = form_of(work, found)
    model = form.model.clone()
    model.meta.update(form.model.meta)
    mark(model, marked(form, found.decision) if found.decision else {})
    group(model, form.apart, form.kernels)
    apply(model, form.apart, spread(form, found.schedule))
    told = {
        "dims": dict(sorted(all_dims(work).items())),
        "extra_flops": extra_flops(found.plan, work.kept),
        "keep_bytes": work.kept.peak,
        "kernels": work.kernels,
        "name": found.name,
        "peak_bytes": found.peak,
    }
    record(model, plan=told)
    return model


def all_dims(work: Workload) -> dict[str, int]:
    """The sizes that a plan was made for: those given when the model was loaded, too."""
    return {**work.model.meta.get("gradtool.dims", {}), **work.dims}


def extra_flops(plan: Plan, kept: Plan) -> int | None:
    """The recomputation of a plan beyond keeping everything; None if nobody knows.

    Operators of unknown cost matter only if they run again.
    """
    again = [s for s in plan.program.steps if s.stage == "recompute"]
    before = {s.name for s in kept.program.steps}
    if any(s.flops is None and s.name not in before for s in again):
        return None
    return total_flops(plan.program) - total_flops(kept.program)


def extra_of(work: Workload, found: Planned) -> int | None:
    """The recomputation of a workload, without its plan if possible."""
    order = found.schedule.order
    if found.form is not None:
        return extra_flops(found.plan, work.kept)
    ran = None if _is_given(work, order) else work.arenas.ran(order)
    if ran is None:
        return extra_flops(found.plan, work.kept)
    first = {step.name: at for at, step in reversed(list(enumerate(ran)))}
    if any(step.flops is None and first[step.name] < at for at, step in enumerate(ran)):
        return None
    return sum(step.flops or 0 for step in ran) - total_flops(work.kept.program)


def total_flops(program: Program) -> int:
    """The operations of a program, but for those of operators of unknown cost."""
    return sum(step.flops or 0 for step in program.steps)


def largest_batch(
    spare: Callable[[int], int | None], *, start: int = 1, rate: float = 0.0, most: int = 1 << 20
) -> int:
    """The largest batch that leaves no fewer than 0 bytes to `spare`; 0 if `start` does not.

    Each candidate is planned anew, and one of which nothing is known does not fit.  A plan that
    fits a batch is taken to fit every smaller one.  Bytes grow about evenly with the batch, so the
    next candidate is where a line through two of them comes to 0, the first one by the `rate` that
    is thought to be that of bytes; after three that did not halve what is open, one is twice as
    large, or in the middle, whatever bytes do.

    Source: regula falsi, kept from stalling by bisection (Press et al., Numerical Recipes, 9.2).
    """
    left = spare(start)
    if left is None or left < 0:
        return 0
    low, high, bounded, stalled = start, most + 1, False, 0
    while high - low > 1:
        by_line = rate > 0 and stalled < _STALLED
        reach = left / rate if by_line else float((high - low) // 2 if bounded else low)
        size = min(low + max(int(min(reach, most)), 1), high - 1)
        width, found = high - low, spare(size)
        if found is not None:
            rate = (left - found) / (size - low)
        if found is not None and found >= 0:
            low, left = size, found
        else:
            high, bounded = size, True
        has_halved = bounded and 2 * (high - low) <= width
        stalled = 0 if has_halved or not by_line else stalled + 1
    return low
