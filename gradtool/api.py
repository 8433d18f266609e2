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
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from gradtool import io
from gradtool.arguments import Seed, checked, takes
from gradtool.errors import GradtoolWarning, UsageError
from gradtool.exec import feeds
from gradtool.exec import inputs as sources
from gradtool.exec.initial import initial_values
from gradtool.exec.results import Result
from gradtool.exec.run import execute, planned
from gradtool.graph.randomness import numbers_of
from gradtool.graph.stages import require_no_updates
from gradtool.operators.kernel_sets import AUTO, Asked
from gradtool.ops.shared.runtime_limits import limited
from gradtool.passes.second_order import is_training_graph
from gradtool.passes.split import Split
from gradtool.passes.split import split as split_model
from gradtool.planning.plan import Plan
from gradtool.program.bind_dims import bound
from gradtool.text.words import some
from gradtool.workloads import plan_files
from gradtool.workloads.batch_scaling import PLANS
from gradtool.workloads.batch_scaling import max_batch as max_batch_of
from gradtool.workloads.export import save, save_split
from gradtool.workloads.goals import Budget, Checkpoints, Slowdown
from gradtool.workloads.grad_options import GradOptions
from gradtool.workloads.groups import require_written
from gradtool.workloads.names import POINTS
from gradtool.workloads.opening import load
from gradtool.workloads.options import documented
from gradtool.workloads.plan_files import PlanFile
from gradtool.workloads.plans import form_of
from gradtool.workloads.rewriting import frontier as frontier_of
from gradtool.workloads.rewriting import mirror, recompute
from gradtool.workloads.rewritten import Graph, Rewritten, model_of
from gradtool.workloads.run_options import RunOptions
from gradtool.workloads.training import TrainingGraph, training_graph

if TYPE_CHECKING:
    from gradtool.comparison.sides import Side
    from gradtool.reports.notebook import Compared, Explained, Frontier, Report

Inputs = Mapping[str, np.ndarray[Any, Any]] | str | os.PathLike[str]


@takes(GradOptions, documented(GradOptions))
def grad(model: Graph, options: GradOptions) -> TrainingGraph:  # noqa: D417 - by `takes`
    """The training graph of a forward model, which is left as it is.

    Given a training graph, its second order: `loss` then names one of its gradients, as in
    `sum:w_grad`, and the earlier gradients stay outputs.  Each of `warnings` is also a
    `GradtoolWarning`.

    Args:
        model: a forward model, or a training graph.

    Raises:
        UsageError: a name that does not exist.
        NotDifferentiable: operators without a gradient, or values the loss does not depend on.

    Example:
        training = gt.grad(gt.load("samples/cnn.onnx"), loss="auto")
        training.gradients["head.weight"]  # the name of the output that holds it
    """
    return differentiated(model_of(model), options)


def differentiated(model: ir.Model, options: GradOptions) -> TrainingGraph:
    """The training graph of a model; each of its lines for people is a `GradtoolWarning`."""
    made = training_graph(model, options)
    for line in made.warnings:
        warnings.warn(line, GradtoolWarning, stacklevel=4)  # behind what holds the arguments
    return made


@checked
def plan(graph: Graph, *, dims: Mapping[str, int] | None = None, kernels: Asked = "auto") -> Plan:
    """The memory plan of a training graph (or of a forward model alone), nothing recomputed.

    A plan for native kernels is the same on every machine, whether or not their library is there.

    Args:
        graph: a training graph, what `mirror` or `recompute` returned, or a model.
        dims: sizes of open symbols to plan for, by name; none by default.
        kernels: those to plan for: `auto`, `numpy`, `native`, `exact`, or `none`, of other
            runtimes.

    Raises:
        UsageError: sizes are open, or an operator has no kernel.

    Example:
        training = gt.grad(gt.load("samples/cnn.onnx", dims={"batch": 8}))
        gt.plan(training).peak  # bytes
    """
    return planned(model_of(graph), dims or {}, kernels)


@takes(RunOptions, documented(RunOptions))
def run(graph: Graph, options: RunOptions) -> Result:  # noqa: D417 - by `takes`
    """Run forward and backward once (or `repeat` times) and return all results.

    Args:
        graph: a training graph, what `mirror` or `recompute` returned, or a model.

    Raises:
        MissingData: an input or a weight is absent.
        UsageError: the model has nothing of a name, or an array has another type or shape; or
            stock onnxruntime is asked for what only our executor does.
        DeviceError: the device is missing or out of memory.
        Exhausted: a step goes on beyond `max_turns` or `max_dynamic`.

    Example:
        training = gt.grad(gt.load("samples/cnn.onnx", dims={"batch": 8}))
        result = gt.run(training, "samples/cnn.npz")
        result.loss, result.gradients["head.weight"].shape
    """
    if options.engine == "ort":
        ignored = {
            "device": options.device not in ("cpu", "auto"), "kernels": options.kernels != AUTO,
        }  # fmt: skip
        given = [name for name, is_given in ignored.items() if is_given]
        if given:
            raise UsageError(f"engine='ort' runs on the CPU as it likes: leave out {some(given)}")
    whole = fetched(graph, options.fetch)
    known = names(graph) if options.fetch else ()
    model, arrays = fed(whole, options.inputs, options.seed, also=known)
    with limited(options.max_turns, options.max_dynamic):
        return step(model, arrays, options)


def step(
    model: ir.Model,
    arrays: dict[str, np.ndarray[Any, Any]],
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
) -> Result:
    """Run what `fed` returned; `arrays` is emptied as they go into the arena.

    Raises:
        MissingData: a weight is absent.
        DeviceError: the device is missing or out of memory.
    """
    if options.engine == "ort":
        from gradtool.exec import ort

        sized = bound(model, feeds.sizes(model, arrays))
        return ort.execute(sized, arrays, repeat=options.repeat, measure=options.measure)
    return execute(model, arrays, options, release=True)


def fed(
    model: ir.Model, inputs: Inputs, seed: int = 0, also: Iterable[str] = ()
) -> tuple[ir.Model, dict[str, np.ndarray[Any, Any]]]:
    """A model with given values for its initializers, and the arrays for its inputs.

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
    """Names that a run of a graph takes: inputs and initializers."""
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
    """Split a training graph into a forward model with saved values as outputs and a backward one.

    Args:
        graph: a training graph, or what `mirror` or `recompute` returned.

    Raises:
        UsageError: the graph holds no gradients.

    Example:
        halves = gt.split(gt.grad(gt.load("samples/cnn.onnx")))
        halves.saved  # names of the values that go from one to the other
    """
    return split_model(model_of(graph))


@checked
def report(
    graphs: Sequence[Graph | Plan], names: Sequence[str] | None = None, *, kernels: Asked = "auto"
) -> Report:
    """Planned memory of several graphs or plans side by side: rows of numbers, printed as a table.

    Args:
        graphs: graphs, which are planned, or plans.
        names: one per graph; by default their own.
        kernels: those to plan for: `auto`, `numpy`, `native`, `exact`, or `none`, of other
            runtimes.

    Raises:
        UsageError: sizes of a graph are open, or there are more or fewer names than graphs.

    Example:
        training = gt.grad(gt.load("samples/cnn.onnx", dims={"batch": 8}))
        print(gt.report([training, gt.mirror(training)], ["keep", "mirror"]))
    """
    from gradtool.reports.notebook import Report

    plans = [g if isinstance(g, Plan) else plan(g, kernels=kernels) for g in graphs]
    if names is not None and len(names) != len(plans):
        raise UsageError(f"{len(names)} names for {len(plans)} graphs")
    return Report.of(plans, names or [p.name for p in plans])


@checked
def frontier(graph: Graph, points: int = POINTS, **options: Any) -> Frontier:
    """The cheapest plans within several budgets, from the least peak found to keeping everything.

    Args:
        graph: a training graph, what `mirror` or `recompute` returned, or a model.
        points: how many budgets, at least 2.
        options: those of `recompute`, without a goal: `strategy`, `optimizer`, `cost`,
            `time_limit`, `dims`, `kernels` and so on.

    Returns:
        Points with a `plan` and a `proof`: budget (bytes), extra work and bound.  Work never rises
        with the budget.

    Raises:
        UsageError: sizes are open that `dims` does not give, or there is no such strategy.

    Example:
        training = gt.grad(gt.load("samples/cnn.onnx", dims={"batch": 8}))
        for point in gt.frontier(training, points=2, strategy="min-cut"):
            point.proof.budget, point.plan.peak  # bytes
    """
    from gradtool.reports.notebook import Frontier

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
    kernels: Asked = "auto",
) -> dict[str, int]:
    """By plan, the largest batch of a training graph whose step fits into a memory; 0 if none does.

    Args:
        graph: a training graph whose batch is open.
        memory: bytes, or `8GiB`; the state of `optimizer` is part of it.
        plans: names of strategies.
        optimizer: whose state is counted; `none` where the graph holds its updates.
        dims: sizes of symbols other than the batch, by name.
        kernels: those to plan for: `auto`, `numpy`, `native`, `exact`, or `none`, of other
            runtimes.

    Raises:
        UsageError: the batch is fixed, there is no such plan, or other sizes are open.

    Example:
        training = gt.grad(gt.load("samples/cnn.onnx"))
        gt.max_batch(training, "64MiB", plans=["keep"])["keep"]
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
    kernels: Asked = "auto",
) -> Explained:
    """Why mirroring keeps a value or computes it again, and what the latter would cost.

    Args:
        graph: a training graph, what `mirror` or `recompute` returned, or a model.
        value: the name of a value of forward.
        policy: what may run twice, a name or a TOML file, as in `mirror`.
        keep: globs of nodes that never run twice.
        drop: globs of nodes that may, whatever the policy.
        dims: sizes of open symbols to plan for, by name; none by default.
        kernels: those to plan for: `auto`, `numpy`, `native`, `exact`, or `none`, of other
            runtimes.

    Raises:
        UsageError: the graph has no such value, native kernels never write it, or sizes are open
            that `dims` does not give.

    Example:
        training = gt.grad(gt.load("samples/cnn.onnx", dims={"batch": 8}))
        print(gt.explain(training, "stem.relu.out"))
    """
    from gradtool.planning.recompute.explain import explain as explain_of
    from gradtool.reports.notebook import Explained

    found = mirror(graph, policy=policy, keep=keep, drop=drop, dims=dims, kernels=kernels)
    require_written(found.work, value)
    decision, schedule = found.planned.decision, found.planned.schedule
    program = form_of(found.work, found.planned).program
    return Explained(explain_of(program, value, decision=decision, schedule=schedule))


@checked
def compare(
    before: Side, now: Side, names: tuple[str, str] = ("before", "now"), *, kernels: Asked = "auto"
) -> Compared:
    """Differences between two graphs, plans, or files of a plan, a report or a baseline.

    Args:
        before: a graph, which is planned, a plan, or the path of a file.
        now: the other one.
        names: what the two are called.
        kernels: those to plan for: `auto`, `numpy`, `native`, `exact`, or `none`, of other
            runtimes.

    Returns:
        `compare(…)["peak"]` is how many bytes the peak grew; printed, it is the tables of
        `gradtool compare`.

    Raises:
        UsageError: sizes of a graph are open, or a file cannot be read.

    Example:
        training = gt.grad(gt.load("samples/cnn.onnx", dims={"batch": 8}))
        gt.compare(training, gt.mirror(training))["peak"]  # bytes, negative: less
    """
    from gradtool.comparison import compare as moved
    from gradtool.comparison.sides import snapshot_of
    from gradtool.reports.notebook import Compared

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
    kernels: Asked = "auto",
) -> str:
    """Run a training graph and check its gradients; a line that says how well they agree.

    Args:
        graph: a training graph, or what `mirror` or `recompute` returned.
        inputs: arrays by name, a file or folder that holds them, or `random`.
        by: `finite-diff` (differences in float64), `ort` (stock onnxruntime) or `plans` (every
            memory plan gives the same bits).
        seed: of what is drawn at random.
        kernels: those that compute: `"auto"`, `"numpy"`, `"native"` or `"exact"`.

    Raises:
        GradtoolError: they disagree; the worst is named.
        UsageError: there is no such check, or the graph draws at random.
        DeviceError: the kernels are native, and cannot be called here.

    Example:
        training = gt.grad(gt.load("samples/lstm.onnx", dims={"batch": 8}))
        print(gt.verify(training, "samples/lstm.npz"))
    """
    from gradtool.exec.verify import checked

    return checked(*fed(model_of(graph), inputs, seed), by, kernels)


@checked
def save_plan(rewritten: Rewritten, path: str | os.PathLike[str], *, force: bool = False) -> int:
    """Write the plan of what `mirror` or `recompute` returned; the bytes of the file.

    Args:
        rewritten: what one of them returned.
        path: the file, JSON.
        force: replace a file that is there.

    Raises:
        UsageError: the file exists without `force`, or cannot be written.

    Example:
        training = gt.grad(gt.load("samples/cnn.onnx", dims={"batch": 8}))
        gt.save_plan(gt.mirror(training), "saved.json")
    """
    return plan_files.save(rewritten.work, rewritten.planned, path, force=force)


@checked
def load_plan(path: str | os.PathLike[str]) -> PlanFile:
    """A written plan, as a goal of `recompute`.

    Args:
        path: the file that `save_plan` or `gradtool recompute -o` wrote.

    Raises:
        UsageError: the file cannot be read or is no plan.

    Example:
        training = gt.grad(gt.load("samples/cnn.onnx", dims={"batch": 8}))
        gt.save_plan(gt.mirror(training), "plan.json")
        gt.recompute(training, gt.load_plan("plan.json")).plan.peak  # bytes
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
