"""A forward graph in training form, its loss, and the cotangents of the backward walk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import ModelError, NotDifferentiable, UsageError
from gradtool.graph import branches, walk
from gradtool.graph.families import ML, PREVIEW
from gradtool.graph.lora import Adapter
from gradtool.graph.metadata import FX_NODE, STAGE, TRACE
from gradtool.graph.names import Names
from gradtool.graph.predicates import is_float
from gradtool.graph.stages import ROLES
from gradtool.graph.training_info import TrainingInfo
from gradtool.losses import attach as losses
from gradtool.losses.settings import CLASS_WEIGHTS
from gradtool.ops.driver import require_types
from gradtool.passes import train_mode as modes
from gradtool.passes.exporters import folded, renamed, untied
from gradtool.passes.parameters import Role, Roles, roles_of
from gradtool.passes.second_order import reopen
from gradtool.passes.training_forms import prepare
from gradtool.passes.untie_initializers import lift_initializers, separate_statistics
from gradtool.passes.whole_windows import fit_windows
from gradtool.shapes import infer
from gradtool.workloads.grad_options import GradOptions


@dataclass(frozen=True)
class Forward:
    """A graph to differentiate: its builder, the roles of its leaves, values of no gradient.

    `nodes` is how many there are before the loss, `said` lines for people.
    """

    op: Builder
    roles: Roles
    stopped: frozenset[ir.Value]
    nodes: int
    said: tuple[str, ...]


@dataclass(frozen=True)
class Heads:
    """The loss of a graph, and the gradients that the backward walk starts from.

    `nodes` is how many the loss has, `adapted` how many adapters have.
    """

    loss: losses.Loss
    cotangents: dict[ir.Value, ir.Value]
    roles: Roles
    adapters: tuple[Adapter, ...]
    nodes: int
    adapted: int
    said: tuple[str, ...]


def forward_of(model: ir.Model, options: GradOptions, *, again: bool) -> Forward:
    """A model in training form, in place; `again` where it holds gradients already."""
    op = _builder(model, options)
    if not again:
        separate_statistics(op)
    stopped, stops = frozenset[ir.Value](), tuple[str, ...]()
    if not again and any({FX_NODE, TRACE} & n.metadata_props.keys() for n in op.graph):
        from gradtool.passes.stop_gradients import stop_gradients

        stopped, stops = stop_gradients(op)
    frozen = _frozen(op.graph, adapted=options.lora is not None)
    roles, lowered = _classified(op, again=again)
    nodes = len(model.graph)
    _mark(list(model.graph), op.names)
    said = (
        *lowered,
        *folded(model.graph),
        *renamed(model.graph),
        *untied(model.graph),
        *frozen,
        *stops,
        *_into_training_form(op, train_mode=options.train_mode),
    )
    if any(node.op_type == "DequantizeLinear" for node in model.graph) and not again:
        from gradtool.passes.fuse_low_bits import fuse_low_bits

        fuse_low_bits(op, {*(options.wrt or ())})
    return Forward(op, roles, stopped, nodes, said)


def heads_of(forward: Forward, options: GradOptions) -> Heads:
    """The loss attached to a graph, or an input for the gradient of each output.

    Raises:
        UsageError: a loss or an output that does not exist.
    """
    op, graph = forward.op, forward.op.model.graph
    before, returned = len(graph), set(graph.outputs)
    loss, cotangents = cotangents_of(
        op, options.loss, options.labels, head_grads=options.head_grads, seed=options.loss_seed
    )
    roles = {v: Role.WEIGHING if CLASS_WEIGHTS in v.meta else r for v, r in forward.roles.items()}
    if options.only_loss:
        from gradtool.passes.trim import return_no_more

        return_no_more(op.model, returned, loss.value)
    said = (
        *loss.warnings,
        *[f"no loss found: using {loss.said}; name one with --loss"] * loss.loud,
    )
    nodes = len(graph) - before
    adapters, loss, cotangents = _adapt(op, options, roles, loss, cotangents)
    adapted = len(graph) - before - nodes
    return Heads(loss, cotangents, roles, adapters, nodes, adapted, said)


def _builder(model: ir.Model, options: GradOptions) -> Builder:
    """The builder that appends to a model, with final names.

    Parameters that are updated, or whose gradients are summed up, have masters of float32.
    """
    op = Builder(model, names=Names.of(model))
    op.ste, op.on_node = options.ste, options.on_node
    op.masters = options.grad_buffers or options.optimizer != "none"
    lift_initializers(op)
    branches.take(model, op.names)
    return op


def _classified(op: Builder, *, again: bool) -> tuple[Roles, Sequence[str]]:
    """Roles of initializers and inputs, weights in attributes among them; what to say of those."""
    graph = op.model.graph
    roles = roles_of(graph, reopen(op.model) if again else _leaves(graph))
    said: Sequence[str] = ()
    if not again and ML in walk.domains(graph):
        from gradtool.passes.lower_ml import lower_ml

        lowered = lower_ml(op)
        roles |= roles_of(graph, lowered.weights)
        said = lowered.said
    op.model.meta[ROLES] = {
        v.name or "": "not trained" if role is Role.PARAMETER else role.brief(v)
        for v, role in roles.items()
    }
    return roles, said


def _is_quantised(graph: ir.Graph) -> bool:
    """Whether a graph has operators on quantised values, or weights of few bits."""
    kinds = {node.op_type for node in graph}
    return any(
        "uantizeLinear" in kind or kind.startswith("QLinear") or kind.endswith("Integer")
        for kind in kinds
    ) or any(
        v.dtype is not None and v.dtype.is_integer() and v.dtype.bitwidth <= 8
        for v in graph.initializers.values()
    )


def _frozen(graph: ir.Graph, *, adapted: bool) -> list[str]:
    """Mark scales of quantised values, which are no parameters; lines on what is not trained."""
    if not _is_quantised(graph):
        return []
    from gradtool.passes.integer_products import mark_scales
    from gradtool.passes.straight_through import frozen

    mark_scales(graph)
    return frozen(graph, adapted=adapted)


def _leaves(graph: ir.Graph) -> list[ir.Value]:
    """Initializers and inputs, each once: an initializer may be an input too."""
    return list(dict.fromkeys((*graph.initializers.values(), *graph.inputs)))


def _mark(nodes: Sequence[ir.Node], names: Names) -> None:
    """Give every node a name and the forward stage."""
    for node in nodes:
        node.name = node.name or names.fresh(node.op_type)
        node.metadata_props.setdefault(STAGE, "forward")


def _into_training_form(op: Builder, *, train_mode: modes.TrainMode) -> list[str]:
    """Rewrite what cannot be differentiated as it stands; what people should hear about it."""
    said = modes.train(op.model, op, train_mode) if train_mode else modes.in_inference(op.model)
    prepare(op.model, op)
    fit_windows(op)
    if PREVIEW in walk.domains(op.model.graph):
        from gradtool.passes.lower_updates import lower_updates

        lower_updates(op)
    types = {node.op_type for node in walk.nodes(op.model.graph)}
    if any("equence" in kind or "Optional" in kind for kind in types):
        from gradtool.passes.lower_sequences import lower_sequences

        if lower_sequences(op):
            infer(op.model)
    if _is_quantised(op.graph):
        from gradtool.passes.straight_through import straight_through

        straight_through(op.model, op)
    return said


def _adapt(
    op: Builder, asked: GradOptions, roles: Roles, loss: losses.Loss,
    cotangents: dict[ir.Value, ir.Value],
) -> tuple[tuple[Adapter, ...], losses.Loss, dict[ir.Value, ir.Value]]:  # fmt: skip
    """Adapters beside weights, if they are asked for; loss and cotangents as they are called now.

    That comes after the loss was chosen: it is told by the products that outputs end in.
    """
    if asked.lora is None:
        return (), loss, cotangents
    if TrainingInfo.of(op.model).lower:
        raise UsageError("--lora: the model holds its gradients already; give the forward model")
    from gradtool.passes.lora import Lora, attach

    rank = Lora(
        asked.lora, asked.lora_target, asked.lora_alpha, asked.lora_seed, stabilized=asked.rslora
    )
    found = attach(op, rank, roles)
    now = {v: found.moved.get(v, v) for v in cotangents}
    value = loss.value if loss.value is None else now.get(loss.value, loss.value)
    return (
        found.adapters,
        replace(loss, value=value),
        {now[v]: dy for v, dy in cotangents.items()},
    )


def cotangents_of(
    op: Builder,
    loss: losses.Wanted | Sequence[losses.Wanted],
    labels: losses.LabelNames,
    *,
    head_grads: bool,
    seed: bool,
) -> tuple[losses.Loss, dict[ir.Value, ir.Value]]:
    """The loss and the initial gradients of the backward walk."""
    if head_grads:
        return losses.Loss(None, "head gradients of every output"), _head_inputs(op)
    try:
        chosen = losses.attach(op, loss, labels)
    except (UsageError, ModelError, NotDifferentiable):
        require_types(op.model)
        raise
    assert chosen.value is not None  # noqa: S101 - a loss that was attached has one
    head = _seed(op, chosen.value) if seed else _ones(op, chosen.value)
    return chosen, {chosen.value: head}


def _head_inputs(op: Builder) -> dict[ir.Value, ir.Value]:
    """One new input per float output, for its gradient."""
    cotangents: dict[ir.Value, ir.Value] = {}
    for value in op.graph.outputs:
        if is_float(value):
            cotangents[value] = ir.Value(
                name=op.names.fresh(f"{value.name}_grad"), shape=value.shape, type=value.type
            )
    if not cotangents:
        raise UsageError("--head-grads: no output is a float")
    op.graph.inputs.extend(cotangents.values())
    return cotangents


def _ones(op: Builder, loss: ir.Value) -> ir.Value:
    """A constant of its own, so that its readers are part of the gradient."""
    import numpy as np

    assert loss.dtype is not None and loss.shape is not None  # noqa: PT018, S101 - a loss has both
    ones = np.ones(loss.shape.numpy(), dtype=loss.dtype.numpy())
    return op.initializer(ir.Tensor(ones, name=op.names.fresh(f"{loss.name}_grad")))


def _seed(op: Builder, loss: ir.Value) -> ir.Value:
    """An input for the gradient of the loss: 1, or a loss scale."""
    made = ir.Value(name=op.names.fresh(f"{loss.name}_grad"), shape=loss.shape, type=loss.type)
    op.graph.inputs.append(made)
    return made
