"""A forward model to its training graph: loss, training forms, backward, outputs, metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UsageError
from gradtool.gradients.driver import Backward, differentiate
from gradtool.graph import branches
from gradtool.graph.lora import Adapter
from gradtool.graph.metadata import STAGE
from gradtool.graph.names import Names
from gradtool.graph.prune import prune
from gradtool.graph.reads import needed
from gradtool.graph.stages import INNER, ROLES, is_backward, stage, take_state
from gradtool.graph.training_info import TrainingInfo, record
from gradtool.losses import attach as losses
from gradtool.losses.settings import CLASS_WEIGHTS
from gradtool.passes import train_mode as modes
from gradtool.passes.clipping import norm_of
from gradtool.passes.cotangents import cotangents_of
from gradtool.passes.exporters import folded, renamed, untied
from gradtool.passes.lift_initializers import lift_initializers
from gradtool.passes.lora import Lora, attach
from gradtool.passes.lower_ml import Lowered, lower_ml
from gradtool.passes.lower_sequences import lower_sequences
from gradtool.passes.lower_updates import lower_updates
from gradtool.passes.masters import keep_masters
from gradtool.passes.merged import separate_statistics
from gradtool.passes.narrow_places import narrow_places
from gradtool.passes.optimizer import add_updates
from gradtool.passes.parameters import Role, Roles, roles_of
from gradtool.passes.returned import return_no_more
from gradtool.passes.second_order import is_training_graph, reopen, require_loss
from gradtool.passes.selection import Selection, cut, select
from gradtool.passes.stop_gradients import Stopped, stop_gradients
from gradtool.passes.straight_through import frozen, mark_scales, straight_through
from gradtool.passes.training_forms import prepare
from gradtool.passes.trim import trim
from gradtool.passes.update_groups import Updates
from gradtool.passes.update_order import update_early
from gradtool.passes.whole_windows import fit_windows
from gradtool.shapes import infer
from gradtool.shapes.folding import forget
from gradtool.workloads.grad_options import GradOptions
from gradtool.workloads.save_less import save_less as saving_less

OnLoss = Callable[[Builder, ir.Value, Sequence[ir.Value]], ir.Value]


@dataclass(frozen=True)
class TrainingGraph:
    """A model that computes forward, loss and gradients.

    Attributes:
        model: the model of onnx-ir.
        loss: the name of its output; None with `head_grads`.
        loss_said: what people read of the loss.
        guessed: nothing said which loss is meant.
        labels: names of the inputs of labels.
        shifts: by how many places labels are ahead, by name.
        gradients: by the name of a value, that of the output that holds its gradient.
        updates: by the name of a parameter, that of the output with its next value, where there is
            an optimizer.
        zeros: names of those whose gradient is zero.
        candidates: how many parameters could have a gradient.
        rules: the gradient rules used.
        warnings: lines for people.
        forward_nodes: how many nodes of forward there are.
        loss_nodes: of the loss.
        backward_nodes: of the gradients.
        update_nodes: of the updates.

    Example:
        training = gt.grad(gt.load("samples/cnn.onnx"))
        training.loss, training.gradients["head.weight"], training.backward_nodes
    """

    model: ir.Model
    loss: str | None
    loss_said: str
    guessed: bool
    labels: tuple[str, ...]
    shifts: Mapping[str, int]
    gradients: Mapping[str, str]
    updates: Mapping[str, str]
    zeros: tuple[str, ...]
    candidates: int
    rules: tuple[str, ...]
    warnings: tuple[str, ...]
    forward_nodes: int
    loss_nodes: int
    backward_nodes: int
    update_nodes: int

    def __repr__(self) -> str:
        nodes = {
            "forward": self.forward_nodes, "loss": self.loss_nodes,
            "backward": self.backward_nodes, "update": self.update_nodes,
        }  # fmt: skip
        counted = " + ".join(f"{number} {what}" for what, number in nodes.items() if number)
        differentiated = len({*self.gradients, *self.updates})
        return (
            f"TrainingGraph({self.model.graph.name!r}, loss {self.loss!r}, "
            f"{differentiated} gradients, {counted} nodes)"
        )

    def _repr_html_(self) -> str:
        from gradtool.text.table import facts

        nodes = self.forward_nodes + self.loss_nodes + self.backward_nodes + self.update_nodes
        found = {
            "loss": self.loss_said, "labels": ", ".join(self.labels) or None,
            "gradients": len(self.gradients), "updates": len(self.updates) or None,
            "nodes": nodes, "backward": self.backward_nodes, "warnings": len(self.warnings),
        }  # fmt: skip
        return facts(f"training graph of {self.model.graph.name}", found)


def training_graph(model: ir.Model, options: GradOptions) -> TrainingGraph:
    """Differentiate a model, which is left as it is unless it is our `own`.

    A training graph is differentiated again: its gradients are values like any other, and stay
    outputs.

    Raises:
        UsageError: a name or a loss that does not exist, or `only_loss` where there is none.
        NotDifferentiable: a value options for is unreachable, or operators have no gradient.
    """
    updated = options.optimizer != "none"
    again = is_training_graph(model)
    if again and options.loss in ("auto", ["auto"], []) and not options.head_grads:
        require_loss(model, options.optimizer)
    meta, model = model.meta, model if options.own else model.clone()
    op = _builder(model, options, masters=options.grad_buffers or updated)
    if not again:
        separate_statistics(op)
    stopped = Stopped() if again else stop_gradients(op)
    roles, lowered = _classified(op, again=again)
    forward = len(model.graph)
    _mark(list(model.graph), op.names)
    warnings = [
        *lowered,
        *folded(model.graph),
        *renamed(model.graph),
        *untied(model.graph),
        *frozen(model.graph),
        *stopped.said,
        *_into_training_form(op, train_mode=options.train_mode),
    ]
    before, returned = len(model.graph), set(model.graph.outputs)
    chosen, cotangents = cotangents_of(
        op, options.loss, options.labels, head_grads=options.head_grads, seed=options.loss_seed
    )
    roles = {v: Role.WEIGHING if CLASS_WEIGHTS in v.meta else r for v, r in roles.items()}
    return_no_more(model, returned if options.only_loss else (), chosen.value)
    warnings += [
        *chosen.warnings,
        *[f"no loss found: using {chosen.said}; name one with --loss"] * chosen.loud,
    ]
    appended = len(model.graph) - before
    adapters, chosen, cotangents = _adapt(op, options, roles, chosen, cotangents)
    forward += len(model.graph) - before - appended
    barred = cut(model.graph, roles, options.no_grad) | stopped.values | op.stopped
    picked = _pick(op, cotangents, roles, options, barred, adapters)
    warnings += modes.freeze(
        op, roles, picked, None if adapters else options.wrt, options.no_grad,
        "" if again else options.train_mode,
    )  # fmt: skip
    state = _publish_state(op)
    op.folding.never(picked.wrt)
    forget(model.graph, picked.wrt)
    warnings += keep_masters(op, picked.wrt) if op.masters else []
    chosen, cotangents = _rewritten(op, options.on_loss, chosen, cotangents, picked.wrt)
    if options.fuse_attention and not again and _may_attend(model.graph):
        from gradtool.passes.fuse_attention import fuse_attention as fuse

        fuse(op, frozenset((*picked.wrt, *barred, *cotangents)))
    made = differentiate(op, cotangents, picked.wrt, cut=barred, accumulate=options.accumulate)
    if chosen.value is not None and chosen.value not in model.graph.outputs:
        model.graph.outputs.append(chosen.value)
    names, trained = _publish(op, made, options)
    updates, said = _updated(op, options, trained) if updated else ({}, ())
    loss_name = chosen.value.name if chosen.value is not None else None
    info, state = TrainingInfo.of(model), state | updates
    replace(
        info,
        loss=loss_name or info.loss,
        gradients=names,
        state={**info.state, **state} if state else info.state,
        heads=tuple(v.name or "" for v in cotangents.values()),
    ).write(model)
    update_early(model)
    _clear(model)
    if options.save_less:
        narrow_places(model, op)
        saving_less(model)
    take_state(model)
    model.meta.update({**meta, INNER: {v.name: dy.name for v, dy in made.inner.items()}})
    later = [stage(node) for node in model.graph if is_backward(node)]
    return TrainingGraph(
        model=model,
        loss=loss_name,
        loss_said=chosen.said,
        guessed=chosen.loud,
        labels=chosen.labels,
        shifts=chosen.shifts,
        gradients=MappingProxyType(names),
        updates=MappingProxyType({v.name or "": updates[v.name or ""] for v in trained}),
        zeros=tuple(v.name or "" for v in made.zeros),
        candidates=picked.candidates,
        rules=made.rules,
        warnings=(*warnings, *said, *modes.at_random(model), *picked.warnings),
        forward_nodes=forward,
        loss_nodes=appended,
        backward_nodes=len(later) - later.count("update"),
        update_nodes=later.count("update"),
    )


def _updated(
    op: Builder, options: GradOptions, trained: Mapping[ir.Value, ir.Value]
) -> tuple[dict[str, str], Sequence[str]]:
    """By parameter the name of its next value; lines for people."""
    updates, said, _ = add_updates(op, Updates.of(vars(options)), trained)
    return updates, said


def _builder(model: ir.Model, asked: GradOptions, *, masters: bool) -> Builder:
    """What appends to a model, whose names are its own by then.

    Whose parameters are updated, or their gradients summed up, has `masters` of float32.
    """
    op = Builder(model, names=Names.of(model))
    op.ste, op.masters, op.on_node = asked.ste, masters, asked.on_node
    lift_initializers(op)
    branches.take(model, op.names)
    return op


def _classified(op: Builder, *, again: bool) -> tuple[Roles, Sequence[str]]:
    """What initializers and inputs are, weights in attributes among them; what to say of those."""
    graph = op.model.graph
    mark_scales(graph)
    roles = roles_of(graph, reopen(op.model) if again else _leaves(graph))
    lowered = Lowered() if again else lower_ml(op)
    roles |= roles_of(graph, lowered.weights)
    op.model.meta[ROLES] = {
        v.name or "": "not trained" if role is Role.PARAMETER else role.brief(v)
        for v, role in roles.items()
    }
    return roles, lowered.said


def _leaves(graph: ir.Graph) -> list[ir.Value]:
    """Initializers and inputs, each once: an initializer may be an input too."""
    return list(dict.fromkeys((*graph.initializers.values(), *graph.inputs)))


def _into_training_form(op: Builder, *, train_mode: modes.TrainMode) -> list[str]:
    """Rewrite what cannot be differentiated as it stands; what people should hear about it."""
    said = modes.train(op.model, op, train_mode) if train_mode else modes.in_inference(op.model)
    prepare(op.model, op)
    fit_windows(op)
    lower_updates(op)
    if lower_sequences(op):
        infer(op.model)
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
    rank = Lora(asked.lora, asked.lora_target, asked.lora_alpha, asked.lora_seed)
    found = attach(op, rank, roles)
    now = {v: found.moved.get(v, v) for v in cotangents}
    value = loss.value if loss.value is None else now.get(loss.value, loss.value)
    return (
        found.adapters,
        replace(loss, value=value),
        {now[v]: dy for v, dy in cotangents.items()},
    )


def _rewritten(
    op: Builder,
    on_loss: OnLoss | None,
    loss: losses.Loss,
    cotangents: dict[ir.Value, ir.Value],
    wrt: Sequence[ir.Value],
) -> tuple[losses.Loss, dict[ir.Value, ir.Value]]:
    """Loss and cotangents as who wants to have a say in it has them."""
    if on_loss is None or loss.value is None:
        return loss, cotangents
    value = on_loss(op, loss.value, wrt)
    return replace(loss, value=value), {value: cotangents[loss.value]}


def _may_attend(graph: ir.Graph) -> bool:
    """Whether there is anything that attention has, so that looking for it is worth its imports."""
    return any(n.op_type in ("Softmax", "Attention", "ScaledAttention") for n in graph)


def _pick(
    op: Builder,
    cotangents: Mapping[ir.Value, ir.Value],
    roles: Roles,
    asked: GradOptions,
    barred: frozenset[ir.Value],
    adapters: Sequence[Adapter],
) -> Selection:
    """The values to differentiate by, among those that the heads depend on.

    With adapters those are what is trained, and nothing else that is not asked for.
    """
    reach, wrt = needed(op.graph, cotangents), asked.wrt
    if adapters:
        held = op.graph.initializers
        reached = [name for each in adapters for name in each.names if held[name] in reach]
        if not reached:
            raise UsageError("--lora: the loss depends on no weight that has an adapter")
        wrt = [*reached, *(wrt or ())]
    flows = needed(op.graph, cotangents, barred) if barred else reach
    return select(op.graph, roles, wrt, asked.input_grad, reaches=reach, flows=flows, barred=barred)


def _clear(model: ir.Model) -> None:
    """Drop what no output depends on, inside of control flow too."""
    prune(model)
    if trim(model):
        prune(model)


def _mark(nodes: Sequence[ir.Node], names: Names) -> None:
    """Give every node a name and the forward stage."""
    for node in nodes:
        node.name = node.name or names.fresh(node.op_type)
        node.metadata_props.setdefault(STAGE, "forward")


def _publish_state(op: Builder) -> dict[str, str]:
    """Make the new running statistics outputs; by initializer, the name of its new value."""
    state: dict[str, str] = {}
    for node in op.graph:
        if node.op_type != "BatchNormalizationTraining":
            continue
        for old, new in zip(node.inputs[3:5], node.outputs[1:3], strict=True):
            if old is None or not old.is_initializer():
                continue
            new.name = new.name or op.names.fresh(f"{old.name}_next")
            if new not in op.graph.outputs:
                op.graph.outputs.append(new)
            state[old.name or ""] = new.name
    return state


def _publish_norm(op: Builder, made: Backward) -> None:
    """Make the norm of all gradients an output, in double precision where one of them is."""
    found = list(made.gradients.values())
    is_double = any(g.dtype == ir.DataType.DOUBLE for g in found)
    with op.at(None, stage="backward", source="", prefix="norm"), op.arithmetic():
        norm = norm_of(op, found, ir.DataType.DOUBLE if is_double else ir.DataType.FLOAT)
    norm.name = op.names.fresh("grad_norm")
    op.graph.outputs.append(norm)


def _publish(
    op: Builder, made: Backward, options: GradOptions
) -> tuple[dict[str, str], dict[ir.Value, ir.Value]]:
    """Make each gradient an output called `<value>_grad`, and return the names.

    With buffers, what an input `<value>_grad_in` holds is added to it.  Where parameters are
    updated, their gradients are no outputs: they come second.
    """
    if options.grad_norm:
        _publish_norm(op, made)
    buffers, updated = options.grad_buffers, options.optimizer != "none"
    names: dict[str, str] = {}
    trained: dict[ir.Value, ir.Value] = {}
    inputs: dict[str, str] = {}
    taken: set[ir.Value] = set(op.graph.outputs)
    for value, gradient in made.gradients.items():
        result = gradient
        if buffers:
            result = _added_to_buffer(op, value, gradient, inputs)
        elif result in taken or result.producer() is None or _is_forward(result):
            with op.at(None, stage="backward", source="", prefix=f"{value.name}/grad"):
                result = op.Identity(result)
        taken.add(result)
        result.name = op.names.fresh(f"{value.name}_grad")
        if updated and value.is_initializer():
            trained[value] = result
            continue
        op.graph.outputs.append(result)
        names[value.name or ""] = result.name
    if buffers:
        record(op.model, buffers=inputs)
    return names, trained


def _added_to_buffer(
    op: Builder, value: ir.Value, gradient: ir.Value, inputs: dict[str, str]
) -> ir.Value:
    """The sum of a gradient and a new input of its shape, whose name is noted in `inputs`."""
    name = op.names.fresh(f"{value.name}_grad_in")
    buffer = ir.Value(name=name, shape=gradient.shape, type=gradient.type)
    op.graph.inputs.append(buffer)
    inputs[value.name or ""] = name
    with op.at(None, stage="backward", source="", prefix=f"{value.name}/grad"):
        total: ir.Value = op.Add(gradient, buffer)
    return total


def _is_forward(value: ir.Value) -> bool:
    node = value.producer()
    return node is not None and not is_backward(node)
