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
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx_ir as ir

from gradtool import gradients, io
from gradtool.builder import Builder
from gradtool.errors import UsageError
from gradtool.exec import feeds, kernel, ort_options
from gradtool.exec import inputs as sources
from gradtool.exec.allowance import limited
from gradtool.exec.run import Result, bound, execute, planned
from gradtool.functions.calls import inline, is_inlined
from gradtool.functions.inference import register_shapes
from gradtool.functions.refold import refold
from gradtool.graph import walk
from gradtool.io.definitions import expand_definitions
from gradtool.passes.backward import Accumulate
from gradtool.passes.barrier import barrier as set_barriers
from gradtool.passes.local_functions import localise
from gradtool.passes.loss import LabelNames, Wanted
from gradtool.passes.lower_contrib import is_contrib, lower_contrib
from gradtool.passes.lower_gradient import is_gradient, lower_gradients, publish_gradients
from gradtool.passes.lower_updates import is_update, lower_updates
from gradtool.passes.portable import portable as make_portable
from gradtool.passes.prune import prune
from gradtool.passes.second_order import is_training_graph
from gradtool.passes.split import Split
from gradtool.passes.split import split as split_model
from gradtool.passes.strip_barriers import strip_barriers
from gradtool.passes.training import OnNode, TrainingGraph, training_graph
from gradtool.planning.plan import Plan
from gradtool.reports.memory import plans_table
from gradtool.reports.table import Table
from gradtool.rewriting import Graph, Rewritten, frontier, mirror, model_of, recompute
from gradtool.shapes import infer

Inputs = Mapping[str, np.ndarray[Any, Any]] | str | os.PathLike[str]


def load(
    source: str | os.PathLike[str],
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
    opset: int | None = None,
) -> ir.Model:
    """A model from a file (`-`: standard input), checked, typed and shaped.

    `dims` gives sizes to symbols, `shapes` to whole inputs, `batch` to the leading symbol of the
    first input.  An older model is raised to `opset`, to 18 at least.  Weights stay on disk until
    they are needed.

    Raises:
        ModelError: the file is missing, damaged or not a valid model.
        UsageError: a symbol or an input does not exist, or a size or opset contradicts the file.
    """
    register_shapes()
    return io.load(
        os.fspath(source),
        dims=dims,
        shapes=shapes,
        batch=batch,
        opset=opset,
        keep_function=_has_rule,
        rewrite=_fold,
    )


def initial_values(source: str | os.PathLike[str]) -> dict[str, np.ndarray[Any, Any]]:
    """What a model's `training_info` computes for its initializers before the first step.

    Raises:
        ModelError: the file is missing, damaged or not a valid model.
    """
    from gradtool import backend
    from gradtool.io import read, training_info

    made = training_info.initial_model(read.from_file(read.existing_path(source)))
    if made is None:
        return {}
    found = backend.prepare(made).run({})
    return dict(zip((v.name for v in made.graph.output), found, strict=True))


def _fold(model: ir.Model) -> None:
    """Put composite calls back, with the sizes left open that were open when they were written.

    Nodes that ask for gradients are replaced by them, and operators without a kernel that ONNX
    defines by others by their definition.
    """
    strip_barriers(model)
    expand_definitions(model, _has_kernel)
    while is_inlined(model):  # a body may be known only once those before it are calls again
        infer(model)
        if not refold(model):
            break
        prune(model)
    if any(is_contrib(node) for node in walk.nodes(model.graph)):
        infer(model)
        lower_contrib(model)
    if any(is_gradient(node) for node in model.graph):
        infer(model)
        publish_gradients(model, lower_gradients(model))


def _has_kernel(domain: str, name: str, version: int) -> bool:
    return kernel.find(domain, name, version) is not None


def _has_rule(domain: str, name: str) -> bool:
    return gradients.find(domain, name, 1) is not None


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
    train_mode: bool = False,
    ste: bool = False,
    grad_buffers: bool = False,
    loss_seed: bool = False,
    optimizer: str = "none",
    save_less: bool = True,
    on_node: OnNode | None = None,
    own: bool = False,
) -> TrainingGraph:
    """The training graph of a forward model, which is left as it is.

    With `own` it may be used up instead, which spares a copy.

    Given a training graph, its second order: `loss` then names one of its gradients, as in
    `sum:w_grad`, and the earlier gradients stay outputs.

    `loss` is `auto`, the name of a value, `KIND[:OUTPUT][@axis=N]` (see `gradtool.losses`), a
    function `f(op, y[, labels])` or the path of one, perhaps with `WEIGHT*` before it; several are
    added.  `labels` names their input, or one per output.  `wrt`, `no_grad` and `input_grad` are
    names or globs.  With `head_grads` there is no loss: an input per output carries its gradient;
    with `loss_seed` an input carries that of the loss.  `train_mode` turns BatchNormalization and
    Dropout to training, `ste` lets gradients straight through quantisation, `grad_buffers` adds
    each gradient to an input of its shape.  With an `optimizer` (`sgd`, `momentum`, `adam`, `adamw`
    or `adagrad`) the graph is a whole training step: next values of parameters and state are
    outputs in place of the parameters' gradients.  With `save_less`, backward keeps as few bytes of
    forward as it can without computing anything twice.  `on_node` is called with every node that a
    rule emits.

    Raises:
        UsageError: a name that does not exist.
        NotDifferentiable: operators without a gradient, or values the loss does not depend on.
    """
    return training_graph(
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
        save_less=save_less,
        on_node=on_node,
        own=own,
    )


def save(
    graph: Graph,
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    external_data: Literal["auto", "always", "never"] = "auto",
    functions: bool = False,
    barrier: bool = False,
    portable: bool = False,
    stock: bool = False,
    say: Callable[[str], object] | None = None,
    own: bool = False,
) -> tuple[Path, int]:
    """Write a graph in standard operators, whole or not at all; returns path and bytes.

    With `functions`, composites are calls of local functions instead of their bodies.  With
    `barrier`, other runtimes compute again what is recomputed whatever their options, and `say` is
    told of what they do not; else the file's metadata holds those that stock onnxruntime needs.
    With `portable`, places of maxima are computed by plain operators, for runtimes whose MaxPool
    has one output.
    The graph is left as it is, unless it is the caller's `own` and of no more use: then no copy of
    it is made.
    What is written was checked: by ONNX's checker, and with `stock`, as the command line does, by
    onnxruntime where it is installed.

    Raises:
        UsageError: the output exists and `force` is not given, or cannot be written.
        InvalidResult: the graph is not valid, and was not written.
    """
    return io.save(
        model_of(graph), path, force=force, external_data=external_data,
        finish=_finish(functions=functions, barrier=barrier, portable=portable, say=say),
        own=own, stock=stock, say=say,
    )  # fmt: skip


def save_split(
    halves: Split,
    paths: Sequence[str | os.PathLike[str]],
    *,
    force: bool = False,
    external_data: Literal["auto", "always", "never"] = "auto",
    functions: bool = False,
    portable: bool = False,
    stock: bool = False,
    own: bool = False,
    say: Callable[[str], object] | None = None,
) -> list[tuple[Path, int]]:
    """Write the two halves of a step, never a new one beside an old one; as `save` does.

    Raises:
        UsageError: an output exists and `force` is not given, or cannot be written.
        InvalidResult: a half is not valid, and neither was written.
    """
    return io.save_together(
        list(zip((halves.forward, halves.backward), paths, strict=True)),
        force=force, external_data=external_data,
        finish=_finish(functions=functions, portable=portable), own=own, stock=stock, say=say,
    )  # fmt: skip


def _finish(
    *,
    functions: bool,
    portable: bool,
    barrier: bool = False,
    say: Callable[[str], object] | None = None,
) -> Callable[[ir.Model], None]:
    """What turns a graph into one of standard operators, on the copy that is written."""

    def finish(model: ir.Model) -> None:
        if any(is_update(node) for node in walk.nodes(model.graph)):
            lower_updates(Builder(model))
        if portable:
            make_portable(model, Builder(model))
        (localise if functions else inline)(model)
        if barrier:
            set_barriers(model, say=say)
        ort_options.mark(model)

    return finish


def plan(graph: Graph, *, dims: Mapping[str, int] | None = None) -> Plan:
    """The memory plan of a training graph (or of a forward model alone), nothing recomputed.

    Raises:
        UsageError: sizes are open, or an operator has no kernel.
    """
    return planned(model_of(graph), dims or {})


def run(
    graph: Graph,
    inputs: Inputs = "random",
    *,
    device: str = "cpu",
    engine: Literal["arena", "ort"] = "arena",
    seed: int = 0,
    repeat: int = 1,
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
    defaults.  Results are copies; with `copy=False` those of our executor on the CPU are views of
    the arena, which lives as long as one of them.

    Raises:
        MissingData: an input or a weight is absent.
        UsageError: the model has nothing of a name, or an array has another type or shape.
        DeviceError: the device is missing or out of memory.
        Exhausted: a step goes on beyond `max_turns` or `max_dynamic`.
    """
    model, arrays = fed(fetched(graph, fetch), inputs, seed, also=names(graph) if fetch else ())
    with limited(max_turns, max_dynamic):
        return step(
            model,
            arrays,
            engine,
            device=device,
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
    **options: Any,
) -> Result:
    """Run what `fed` returned; `arrays` is emptied as they go into the arena.

    Raises:
        MissingData: a weight is absent.
        DeviceError: the device is missing or out of memory.
    """
    if engine == "ort":
        from gradtool.exec import ort

        return ort.execute(bound(model, feeds.sizes(model, arrays)), arrays, repeat=repeat)
    return execute(model, arrays, repeat=repeat, release=True, **options)


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
    """The arrays that are given, read or drawn for a model, unchecked."""
    if isinstance(inputs, Mapping):
        return inputs
    if os.fspath(inputs) != "random":
        return sources.read(os.fspath(inputs))
    open_sizes = io.symbols(model)
    if open_sizes:
        raise UsageError(f"sizes are open: {', '.join(open_sizes)}; give them with --dim NAME=SIZE")
    return sources.random(model, seed)


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


def split(graph: Graph) -> Split:
    """A training graph as a forward model that also returns what is saved, and a backward one.

    Raises:
        UsageError: the graph holds no gradients.
    """
    return split_model(model_of(graph))


def report(graphs: Sequence[Graph | Plan], names: Sequence[str] | None = None) -> Table:
    """Planned memory of several graphs or plans side by side, as rows."""
    plans = [g if isinstance(g, Plan) else plan(g) for g in graphs]
    return plans_table(plans, names or [p.name for p in plans])


__all__ = [
    "Plan",
    "Result",
    "Rewritten",
    "Split",
    "Table",
    "TrainingGraph",
    "fed",
    "fetched",
    "frontier",
    "grad",
    "initial_values",
    "is_training_graph",
    "load",
    "mirror",
    "model_of",
    "names",
    "plan",
    "read_inputs",
    "recompute",
    "report",
    "run",
    "save",
    "split",
    "step",
]
