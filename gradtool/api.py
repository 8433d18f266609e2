"""The Python interface: what the commands do, as functions that return frozen results.

    import gradtool as gt

    model = gt.load("resnet50.onnx", dims={"batch": 32})
    training = gt.grad(model, loss="auto")
    plan = gt.plan(training)
    result = gt.run(training, inputs="random", device="cpu")
    gt.save(training, "resnet50.grad.onnx")

Nothing prints.  Sizes are bytes, as integers.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx_ir as ir

from gradtool import io
from gradtool.arguments import Many, Rank, Seed, checked
from gradtool.errors import GradtoolWarning, UsageError
from gradtool.exec import feeds
from gradtool.exec import inputs as sources
from gradtool.exec.initial import initial_values
from gradtool.exec.results import Result
from gradtool.exec.run import execute, planned
from gradtool.gradients.driver import Accumulate
from gradtool.graph.counted import numbers_of
from gradtool.graph.stages import require_no_updates
from gradtool.kernels.allowance import limited
from gradtool.kernels.native import Kernels
from gradtool.losses.attach import LabelNames, Wanted
from gradtool.passes.second_order import is_training_graph
from gradtool.passes.split import Split
from gradtool.passes.split import split as split_model
from gradtool.passes.train_mode import TrainMode
from gradtool.passes.update_groups import Scales
from gradtool.passes.update_settings import Given
from gradtool.planning.plan import Plan
from gradtool.program.bound import bound
from gradtool.text.words import some
from gradtool.workloads import plan_files
from gradtool.workloads.finishing import save, save_split
from gradtool.workloads.goals import Budget, Checkpoints, Slowdown
from gradtool.workloads.groups import require_written
from gradtool.workloads.growing import PLANS
from gradtool.workloads.growing import max_batch as max_batch_of
from gradtool.workloads.names import POINTS
from gradtool.workloads.opening import load
from gradtool.workloads.plan_files import PlanFile
from gradtool.workloads.plans import form_of
from gradtool.workloads.rewriting import Graph, Rewritten, mirror, model_of, recompute
from gradtool.workloads.rewriting import frontier as frontier_of
from gradtool.workloads.training import OnLoss, OnNode, TrainingGraph, training_graph

if TYPE_CHECKING:
    from gradtool.comparison.sides import Side
    from gradtool.reports.shown import Compared, Explained, Frontier, Report

Inputs = Mapping[str, np.ndarray[Any, Any]] | str | os.PathLike[str]


@checked
def grad(
    model: Graph,
    *,
    loss: Wanted | Sequence[Wanted] = "auto",
    labels: LabelNames = "labels",
    wrt: Sequence[str] | None = None,
    no_grad: Sequence[str] = (),
    input_grad: Sequence[str] = (),
    head_grads: bool = False,
    accumulate: Accumulate = "chain",
    train_mode: TrainMode = False,
    ste: bool = False,
    grad_buffers: bool = False,
    loss_seed: bool = False,
    optimizer: str = "none",
    lora: Rank | None = None,
    lora_target: Sequence[str] = (),
    lora_alpha: float | None = None,
    lora_seed: Seed = 0,
    optimizer_option: Given = (),
    clip_norm: float | None = None,
    clip_value: float | None = None,
    no_decay: Sequence[str] = (),
    lr_scale: Scales = (),
    sparse: bool = False,
    save_less: bool = True,
    fuse_attention: bool = True,
    only_loss: bool = False,
    on_loss: OnLoss | None = None,
    on_node: OnNode | None = None,
    own: bool = False,
) -> TrainingGraph:
    """The training graph of a forward model, which is left as it is.

    With `own` it may be used up instead, which spares a copy.

    Given a training graph, its second order: `loss` then names one of its gradients, as in
    `sum:w_grad`, and the earlier gradients stay outputs.

    `loss` is `auto`, the name of a value, `KIND[:OUTPUT][@SETTINGS]` (see `gradtool.losses`), a
    function `f(op, y[, labels])` or the path of one, perhaps with `WEIGHT*` before it; several are
    added.  `labels` names their input, or one per output.  `wrt`, `no_grad` and `input_grad` are
    names or globs.  With `head_grads` there is no loss: an input per output carries its gradient;
    with `loss_seed` an input carries that of the loss.  `train_mode` turns BatchNormalization and
    Dropout to training, but norms whose parameters `wrt` or `no_grad` freezes; names or globs in
    its place are of the norms that train, by node, module or tensor.  `ste` lets gradients straight
    through quantisation, `grad_buffers` adds each gradient to an input of its shape.  With an
    `optimizer` (see
    docs/optimizers.md) the graph is a whole training step: next values of parameters and state are
    outputs in place of the parameters' gradients.  Of it, `optimizer_option` sets numbers and
    switches (`{"momentum": 0.9, "nesterov": True}`); gradients are clipped one by one to
    `clip_value`, then all together to the norm `clip_norm`; parameters that match `no_decay` have
    no weight decay, `lr_scale` (`{"backbone.*": 0.1}`) multiplies the learning rate of those that
    match; with `sparse`, tables that Gather alone reads have rows for a gradient.  With a rank
    `lora`, adapters beside weights of MatMul, Gemm and Conv (those that match `lora_target`, scaled
    by `lora_alpha` over the rank, drawn by `lora_seed`) are trained in place of the parameters, and
    what `wrt` names is as well.  With `save_less`, backward keeps as few bytes of forward as it can
    without computing anything twice; with `fuse_attention` it keeps one number per row of attention
    and computes the probabilities again.  With `only_loss` the graph returns the loss and
    gradients, not what the model returns, which dies where it was last read.  `on_loss` may rewrite
    the forward graph before backward is made, and returns the loss; `on_node` is called with every
    node that a rule emits.

    Each of `warnings` is also a `GradtoolWarning`.

    Raises:
        UsageError: a name that does not exist.
        NotDifferentiable: operators without a gradient, or values the loss does not depend on.
    """
    made = training_graph(
        model_of(model),
        loss=loss,
        labels=labels,
        wrt=wrt,
        no_grad=no_grad,
        input_grad=input_grad,
        head_grads=head_grads,
        accumulate=accumulate,
        train_mode=train_mode,
        ste=ste,
        grad_buffers=grad_buffers,
        loss_seed=loss_seed,
        optimizer=optimizer,
        lora=lora,
        lora_target=lora_target,
        lora_alpha=lora_alpha,
        lora_seed=lora_seed,
        optimizer_option=optimizer_option,
        clip_norm=clip_norm,
        clip_value=clip_value,
        no_decay=no_decay,
        lr_scale=lr_scale,
        sparse=sparse,
        save_less=save_less,
        fuse_attention=fuse_attention,
        only_loss=only_loss,
        on_loss=on_loss,
        on_node=on_node,
        own=own,
    )
    for line in made.warnings:
        warnings.warn(line, GradtoolWarning, stacklevel=3)  # behind what holds the arguments
    return made


@checked
def plan(
    graph: Graph, *, dims: Mapping[str, int] | None = None, kernels: Kernels = "numpy"
) -> Plan:
    """The memory plan of a training graph (or of a forward model alone), nothing recomputed.

    `kernels` are those that it is for, as in `run`: a plan for native ones is the same on every
    machine, whether or not their library is there.

    Raises:
        UsageError: sizes are open, or an operator has no kernel.
    """
    return planned(model_of(graph), dims or {}, kernels)


@checked
def run(
    graph: Graph,
    inputs: Inputs = "random",
    *,
    device: str = "cpu",
    engine: Literal["arena", "ort"] = "arena",
    kernels: Kernels = "numpy",
    seed: Seed = 0,
    repeat: Many = 1,
    measure: bool = False,
    check_nan: bool = False,
    check_arena: bool = False,
    copy: bool = True,
    fetch: Sequence[str] = (),
    max_turns: int | None = None,
    max_dynamic: int | None = None,
) -> Result:
    """Run forward and backward once (or `repeat` times) and return all results.

    `inputs` are arrays by name, a file or folder that holds them, or `random` (drawn with `seed`).
    An array that has the name of an initializer takes its place: that of a parameter, or of state.
    Gradient buffers that are not given are zero.  With `fetch`, names or globs of any values, only
    those are computed and returned.  A step stops after `max_turns` turns of loops, and before
    values whose sizes depend on data take more than `max_dynamic` bytes; `docs/limits.md` has the
    defaults.  With `native` kernels the library computes what it can, with `exact` ones without
    Winograd's convolutions (docs/running.md).  Results
    are copies; with `copy=False` those of our executor on the CPU are views of
    the arena, which lives as long as one of them.

    Raises:
        MissingData: an input or a weight is absent.
        UsageError: the model has nothing of a name, or an array has another type or shape; or
            stock onnxruntime is asked for what only our executor does.
        DeviceError: the device is missing or out of memory.
        Exhausted: a step goes on beyond `max_turns` or `max_dynamic`.
    """
    if engine == "ort":
        ignored = {
            "device": device not in ("cpu", "auto"), "kernels": kernels != "numpy",
            "check_nan": check_nan,
            "check_arena": check_arena, "max_turns": max_turns is not None,
            "max_dynamic": max_dynamic is not None,
        }  # fmt: skip
        given = [name for name, is_given in ignored.items() if is_given]
        if given:
            raise UsageError(f"engine='ort' runs on the CPU as it likes: leave out {some(given)}")
    model, arrays = fed(fetched(graph, fetch), inputs, seed, also=names(graph) if fetch else ())
    with limited(max_turns, max_dynamic):
        return step(
            model,
            arrays,
            engine,
            device=device,
            kernels=kernels,
            repeat=repeat,
            measure=measure,
            check_nan=check_nan,
            check_arena=check_arena,
            copy=copy,
        )


def step(
    model: ir.Model,
    arrays: dict[str, np.ndarray[Any, Any]],
    engine: Literal["arena", "ort"] = "arena",
    *,
    repeat: int = 1,
    measure: bool = False,
    **options: Any,
) -> Result:
    """Run what `fed` returned; `arrays` is emptied as they go into the arena.

    Raises:
        MissingData: a weight is absent.
        DeviceError: the device is missing or out of memory.
    """
    if engine == "ort":
        from gradtool.exec import ort

        sized = bound(model, feeds.sizes(model, arrays))
        return ort.execute(sized, arrays, repeat=repeat, measure=measure)
    return execute(model, arrays, repeat=repeat, measure=measure, release=True, **options)


def fed(
    model: ir.Model, inputs: Inputs, seed: int = 0, also: Iterable[str] = ()
) -> tuple[ir.Model, dict[str, np.ndarray[Any, Any]]]:
    """A model that holds what is given for its initializers, and the arrays for its inputs.

    Names among `also` are known and left out.

    Raises:
        MissingData: an input is absent.
        UsageError: the model has nothing of a name, or an array has another type or shape.
    """
    source = "inputs" if isinstance(inputs, Mapping) else os.fspath(inputs)
    return feeds.fed(model, read_inputs(model, inputs, seed), source, also)


def read_inputs(model: ir.Model, inputs: Inputs, seed: int = 0) -> Mapping[str, Any]:
    """The arrays that are given, read or drawn for a model, unchecked; Dropout is of the seed."""
    dropout = numbers_of(model).get("seed")
    seeds = {dropout: seed} if dropout else {}
    if isinstance(inputs, Mapping):
        return {**seeds, **inputs}
    if os.fspath(inputs) != "random":
        return {**seeds, **sources.read(os.fspath(inputs))}
    io.require_sizes(model)
    return {**sources.random(model, seed), **seeds}


def names(graph: Graph) -> list[str]:
    """What a run of a graph takes by name: inputs and initializers."""
    whole = model_of(graph).graph
    return [v.name or "" for v in (*whole.inputs, *whole.initializers.values())]


def fetched(graph: Graph, patterns: Sequence[str]) -> ir.Model:
    """The model of a graph, reduced to the values that match; whole if there is no pattern.

    Raises:
        UsageError: a pattern matches nothing.
    """
    from gradtool.passes.fetch import fetch

    model = model_of(graph)
    return fetch(model, patterns) if patterns else model


@checked
def split(graph: Graph) -> Split:
    """A training graph as a forward model that also returns what is saved, and a backward one.

    Raises:
        UsageError: the graph holds no gradients.
    """
    return split_model(model_of(graph))


@checked
def report(
    graphs: Sequence[Graph | Plan],
    names: Sequence[str] | None = None,
    *,
    kernels: Kernels = "numpy",
) -> Report:
    """Planned memory of several graphs or plans side by side: rows of numbers, printed as a table.

    Graphs are planned for `kernels`; plans are what they are.

    Raises:
        UsageError: sizes of a graph are open, or there are more or fewer names than graphs.
    """
    from gradtool.reports.shown import Report

    plans = [g if isinstance(g, Plan) else plan(g, kernels=kernels) for g in graphs]
    if names is not None and len(names) != len(plans):
        raise UsageError(f"{len(names)} names for {len(plans)} graphs")
    return Report.of(plans, names or [p.name for p in plans])


@checked
def frontier(graph: Graph, points: int = POINTS, **options: Any) -> Frontier:
    """The cheapest plans within several budgets, from the least peak found to keeping everything.

    `options` are those of `recompute`, without a goal.  Each point has a `plan` and a `proof` with
    its budget, extra work and bound; work never rises with the budget.

    Raises:
        UsageError: sizes are open that `dims` does not give, or there is no such strategy.
    """
    from gradtool.reports.shown import Frontier

    found = frontier_of(graph, points, **options)
    return Frontier(found.found, found.kept, found.state)


@checked
def max_batch(
    graph: Graph,
    memory: str | int,
    *,
    plans: Sequence[str] = PLANS,
    optimizer: str = "none",
    dims: Mapping[str, int] | None = None,
    kernels: Kernels = "numpy",
) -> dict[str, int]:
    """By plan, the largest batch of a training graph whose step fits into a memory; 0 if none does.

    `memory` is bytes or `8GiB`, the state of `optimizer` included; `plans` are strategies, for
    `kernels`.

    Raises:
        UsageError: the batch is fixed, there is no such plan, or other sizes are open.
    """
    if optimizer != "none":
        require_no_updates(model_of(graph))
    return max_batch_of(
        model_of(graph), memory, plans=plans, optimizer=optimizer, dims=dims, kernels=kernels
    )


@checked
def explain(
    graph: Graph,
    value: str,
    *,
    policy: str = "mirror",
    keep: Sequence[str] = (),
    drop: Sequence[str] = (),
    dims: Mapping[str, int] | None = None,
    kernels: Kernels = "numpy",
) -> Explained:
    """Why mirroring keeps a value or computes it again, and what the latter would cost.

    Options are those of `mirror`.

    Raises:
        UsageError: the graph has no such value, native kernels never write it, or sizes are open
            that `dims` does not give.
    """
    from gradtool.planning.recompute.explain import explain as explain_of
    from gradtool.reports.shown import Explained

    found = mirror(graph, policy=policy, keep=keep, drop=drop, dims=dims, kernels=kernels)
    require_written(found.work, value)
    decision, schedule = found.planned.decision, found.planned.schedule
    program = form_of(found.work, found.planned).program
    return Explained(explain_of(program, value, decision=decision, schedule=schedule))


@checked
def compare(
    before: Side,
    now: Side,
    names: tuple[str, str] = ("before", "now"),
    *,
    kernels: Kernels = "numpy",
) -> Compared:
    """What moved between two graphs, plans, or files that hold a plan, a report or a baseline.

    Graphs are planned for `kernels`.  `compare(…)["peak"]` is how many bytes the peak grew;
    printed, it is the tables of `gradtool compare`.

    Raises:
        UsageError: sizes of a graph are open, or a file cannot be read.
    """
    from gradtool.comparison import compare as moved
    from gradtool.comparison.sides import snapshot_of
    from gradtool.reports.shown import Compared

    if len(names) != 2:
        raise UsageError(f"compare: {len(names)} names for two sides")
    sides = (snapshot_of(*side, kernels) for side in zip((before, now), names, strict=True))
    return Compared(moved(*sides))


@checked
def verify(
    graph: Graph,
    inputs: Inputs = "random",
    by: str = "finite-diff",
    *,
    seed: Seed = 0,
    kernels: Kernels = "numpy",
) -> str:
    """Run a training graph and check its gradients; a line that says how well they agree.

    `by` is `finite-diff` (differences in float64), `ort` (stock onnxruntime) or `plans` (every
    memory plan gives the same bits).  `kernels` are what computes.

    Raises:
        GradtoolError: they disagree; the worst is named.
        UsageError: there is no such check, or the graph draws at random.
        DeviceError: the kernels are native, and cannot be called here.
    """
    from gradtool.exec.verify import checked

    return checked(*fed(model_of(graph), inputs, seed), by, kernels)


@checked
def save_plan(rewritten: Rewritten, path: str | os.PathLike[str], *, force: bool = False) -> int:
    """Write the plan of what `mirror` or `recompute` returned; the bytes of the file.

    Raises:
        UsageError: the file exists without `force`, or cannot be written.
    """
    return plan_files.save(rewritten.work, rewritten.planned, path, force=force)


@checked
def load_plan(path: str | os.PathLike[str]) -> PlanFile:
    """A plan that was written, which `recompute` takes as its goal.

    Raises:
        UsageError: the file cannot be read or is no plan.
    """
    return plan_files.load(path)


# fmt: off
__all__ = [
    "Budget", "Checkpoints", "Plan", "PlanFile", "Result", "Rewritten", "Slowdown", "Split",
    "TrainingGraph", "compare", "explain", "fed", "fetched", "frontier", "grad",
    "initial_values", "is_training_graph", "load", "load_plan", "max_batch", "mirror",
    "model_of", "names", "plan", "read_inputs", "recompute", "report", "run", "save",
    "save_plan", "save_split", "split", "step", "verify",
]
# fmt: on
