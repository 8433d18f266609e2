"""Savings of keeping less of forward, step by step: rows for a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import onnx_ir as ir

from gradtool.graph.stages import is_backward, is_hoisted
from gradtool.operators.kernel_sets import Kernels
from gradtool.passes.residuals import residuals
from gradtool.passes.second_order import is_training_graph
from gradtool.workloads.grad_options import GradOptions
from gradtool.workloads.hoist import move_back
from gradtool.workloads.save_less import planned, save_less

Step = Literal["plain", "masks", "hoisting"]


@dataclass(frozen=True)
class Saving:
    """A training graph with so much done to it: nothing, masks, then hoisting as well.

    `residuals` is what backward keeps of forward, in bytes, and `unsized` the values of unknown
    size that are not in it.  `peak` is the planned peak of the whole step in bytes, parameters
    included; None if sizes are open or an operator has no kernel.  `moved` is how many nodes of
    which operator forward computes for backward, the most first; `asked` how many sizes backward
    reads off values that it keeps anyway.
    """

    step: Step
    residuals: int
    unsized: int
    peak: int | None
    moved: tuple[tuple[str, int], ...]
    asked: int


def savings(
    model: ir.Model,
    *,
    dims: Mapping[str, int] | None = None,
    kernels: Kernels = "numpy",
    options: GradOptions | None = None,
) -> tuple[Saving, ...]:
    """The rows of a model, in the order of `Step`; the model is left as it is.

    A forward model is differentiated with `options`.  Of a training
    graph the nodes that were hoisted are first moved back, but sizes that are asked of other values
    stay asked of them.  `dims` gives sizes to symbols; open ones are assumed in `residuals`, and
    have no peak.  Peaks are those of `kernels`.

    Raises:
        UsageError: a symbol or an option that does not exist.
        NotDifferentiable: a forward model has no gradient.
    """
    plain = _plain(_bound(model, dims or {}), options)
    masked, least = plain.clone(), plain.clone()
    save_less(masked, hoisting=False)
    save_less(least)
    return (
        _row("plain", plain, plain, kernels),
        _row("masks", masked, plain, kernels),
        _row("hoisting", least, plain, kernels),
    )


def _bound(model: ir.Model, dims: Mapping[str, int]) -> ir.Model:
    from gradtool.program.bind_dims import bound

    return bound(model, dims) if dims else model


def _plain(model: ir.Model, options: GradOptions | None) -> ir.Model:
    """The training graph that nothing was done to."""
    from gradtool.workloads.training import training_graph

    if not is_training_graph(model):
        return training_graph(model, replace(options or GradOptions(), save_less=False)).model
    model = model.clone()
    move_back(model)
    return model


def _row(step: Step, model: ir.Model, plain: ir.Model, kernels: Kernels) -> Saving:
    kept = residuals(model)
    plan = planned(model, kernels)
    moved = Counter(node.op_type for node in model.graph if is_hoisted(node))
    return Saving(
        step=step,
        residuals=kept.bytes,
        unsized=len(kept.unsized),
        peak=None if plan is None else plan.total,
        moved=tuple(sorted(moved.items(), key=lambda item: (-item[1], item[0]))),
        asked=_asked(model, plain),
    )


def _asked(model: ir.Model, plain: ir.Model) -> int:
    """How many backward nodes read the sizes of another value than before."""
    before = {n.name: n.inputs[0] for n in plain.graph if n.op_type == "Shape"}
    return sum(
        n.name in before and _name(before[n.name]) != _name(n.inputs[0])
        for n in model.graph
        if n.op_type == "Shape" and is_backward(n)
    )


def _name(value: ir.Value | None) -> str | None:
    return None if value is None else value.name
