"""A forward model to its training graph: loss, training forms, backward, outputs, metadata."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UsageError
from gradtool.graph import walk
from gradtool.graph.attributes import arguments
from gradtool.graph.composites import DOMAIN
from gradtool.graph.prune import prune
from gradtool.graph.reads import needed
from gradtool.graph.stages import INNER, is_backward, stage, take_state
from gradtool.graph.training_info import TrainingInfo
from gradtool.losses import attach as losses
from gradtool.operators import losses as limits
from gradtool.ops.driver import differentiate
from gradtool.ops.pool.body import place_type
from gradtool.passes import train_mode as modes
from gradtool.passes.parameters import scalars
from gradtool.passes.second_order import is_training_graph, require_loss
from gradtool.passes.selection import Selection, cut, select
from gradtool.passes.training_forms import stand_in
from gradtool.passes.trim import trim
from gradtool.passes.update_order import update_early
from gradtool.shapes.folding import forget
from gradtool.workloads.forward_graph import Heads, forward_of, heads_of
from gradtool.workloads.grad_options import GradOptions
from gradtool.workloads.gradient_outputs import publish, publish_state
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
        others: outputs that may have losses as well, where nobody said which one has.
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
    others: tuple[str, ...]
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

    A training graph is differentiated again: its gradients are values like any other.

    Raises:
        UsageError: a name or a loss that does not exist.
        NotDifferentiable: a value asked for is unreachable, or operators have no gradient.
    """
    again = is_training_graph(model)
    if again and options.loss in ("auto", ["auto"], []) and not options.head_grads:
        require_loss(model, options.optimizer)
    meta, model = model.meta, model if options.own else model.clone()
    forward = forward_of(model, options, again=again)
    op, heads = forward.op, heads_of(forward, options)
    barred = cut(model.graph, heads.roles, options.no_grad) | forward.stopped | op.stopped
    picked = _pick(op, heads, options, barred)
    wrt, mode = None if heads.adapters else options.wrt, "" if again else options.train_mode
    left = modes.freeze(op, heads.roles, picked, wrt, options.no_grad, mode)
    warnings = [*forward.said, *heads.said, *left]
    state = publish_state(op)
    frozen = [] if again else scalars(heads.roles, picked.wrt)
    op.folding.never((*picked.wrt, *frozen))
    forget(model.graph, (*picked.wrt, *frozen))
    if op.masters:
        from gradtool.passes.masters import keep_masters

        warnings += keep_masters(op, picked.wrt)
    loss, cotangents = _rewritten(op, options.on_loss, heads.loss, heads.cotangents, picked.wrt)
    if not again:
        kept = frozenset((*picked.wrt, *frozen, *barred))
        loss, cotangents = _fused(op, options, kept, loss, cotangents)
    made = differentiate(op, cotangents, picked.wrt, cut=barred, accumulate=options.accumulate)
    if loss.value is not None and loss.value not in model.graph.outputs:
        model.graph.outputs.append(loss.value)
    names, trained = publish(op, made, options)
    updates, said = _updated(op, options, trained)
    _record(model, loss, names, state | updates, cotangents, frozen)
    _finish(op, options)
    model.meta.update({**meta, INNER: {v.name: dy.name for v, dy in made.inner.items()}})
    later = [stage(node) for node in model.graph if is_backward(node)]
    return TrainingGraph(
        model=model,
        loss=None if loss.value is None else loss.value.name,
        loss_said=loss.said,
        guessed=loss.loud,
        others=loss.others,
        labels=loss.labels,
        shifts=loss.shifts,
        gradients=MappingProxyType(names),
        updates=MappingProxyType({v.name or "": updates[v.name or ""] for v in trained}),
        zeros=tuple(v.name or "" for v in made.zeros),
        candidates=picked.candidates,
        rules=made.rules,
        warnings=(*warnings, *said, *modes.at_random(model), *picked.warnings),
        forward_nodes=forward.nodes + heads.adapted,
        loss_nodes=heads.nodes,
        backward_nodes=len(later) - later.count("update"),
        update_nodes=later.count("update"),
    )


def _updated(
    op: Builder, options: GradOptions, trained: Mapping[ir.Value, ir.Value]
) -> tuple[dict[str, str], Sequence[str]]:
    """By parameter the name of its next value, where it is updated; lines for people."""
    if options.optimizer == "none":
        return {}, ()
    from gradtool.passes.optimizer import add_updates
    from gradtool.passes.update_groups import Updates

    updates, said, _ = add_updates(op, Updates.of(vars(options)), trained)
    return updates, said


def _record(
    model: ir.Model,
    loss: losses.Loss,
    gradients: dict[str, str],
    state: dict[str, str],
    cotangents: Mapping[ir.Value, ir.Value],
    frozen: Sequence[ir.Value],
) -> None:
    """Write what the graph is now into its metadata."""
    info = TrainingInfo.of(model)
    replace(
        info,
        loss=info.loss if loss.value is None else loss.value.name,
        gradients=gradients,
        state={**info.state, **state} if state else info.state,
        heads=tuple(v.name or "" for v in cotangents.values()),
        frozen=(*info.frozen, *(v.name or "" for v in frozen)),
    ).write(model)


def _finish(op: Builder, options: GradOptions) -> None:
    """Order the updates, drop what no output depends on, and keep less of forward."""
    update_early(op.model)
    _clear(op.model)
    if options.save_less:
        narrow_places(op.model, op)
        saving_less(op.model)
    take_state(op.model)


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


def _fused(
    op: Builder,
    options: GradOptions,
    kept: frozenset[ir.Value],
    loss: losses.Loss,
    cotangents: dict[ir.Value, ir.Value],
) -> tuple[losses.Loss, dict[ir.Value, ir.Value]]:
    """Fuse attention and losses, all but the values that are `kept`; see `_fuse_loss`."""
    if options.fuse_attention:
        _fuse_attention(op, kept | cotangents.keys())
    if options.documents:
        from gradtool.passes.document_mask import separate_documents

        separate_documents(op)
    return _fuse_loss(op, kept, loss, cotangents) if options.fuse_loss else (loss, cotangents)


def _fuse_attention(op: Builder, kept: frozenset[ir.Value]) -> None:
    """Fuse attention, if there is any: looking for it takes imports."""
    if any(n.op_type in ("Softmax", "Attention", "ScaledAttention") for n in op.graph):
        from gradtool.passes.fuse_attention import fuse_attention

        fuse_attention(op, kept)


def _has_many_classes(node: ir.Node) -> bool:
    """Whether a loss may be of scores that are worth a pass: importing it takes time."""
    if node.op_type not in ("LogSoftmax", "SoftmaxCrossEntropyLoss") or node.inputs[0] is None:
        return False
    sizes = node.inputs[0].shape or ()
    return any(isinstance(size, int) and size >= limits.MANY_CLASSES for size in sizes)


def _fuse_loss(
    op: Builder,
    kept: frozenset[ir.Value],
    loss: losses.Loss,
    cotangents: dict[ir.Value, ir.Value],
) -> tuple[losses.Loss, dict[ir.Value, ir.Value]]:
    """Fuse losses with the layers of their scores; loss and cotangents as they are called now."""
    if not any(map(_has_many_classes, op.graph)):
        return loss, cotangents
    from gradtool.passes.fuse_cross_entropy import fuse_cross_entropy

    moved = fuse_cross_entropy(op, kept)
    value = None if loss.value is None else moved.get(loss.value, loss.value)
    return replace(loss, value=value), {moved.get(v, v): dy for v, dy in cotangents.items()}


def _pick(
    op: Builder, heads: Heads, options: GradOptions, barred: frozenset[ir.Value]
) -> Selection:
    """The values to differentiate by, among the ancestors of the heads.

    With adapters those are what is trained, and nothing else that is not asked for.
    """
    reach, wrt = needed(op.graph, heads.cotangents), options.wrt
    if heads.adapters:
        held = op.graph.initializers
        reached = [name for each in heads.adapters for name in each.names if held[name] in reach]
        if not reached:
            raise UsageError("--lora: the loss depends on no weight that has an adapter")
        wrt = [*reached, *(wrt or ())]
    flows = needed(op.graph, heads.cotangents, barred) if barred else reach
    return select(
        op.graph, heads.roles, wrt, options.input_grad, reaches=reach, flows=flows, barred=barred
    )


def _clear(model: ir.Model) -> None:
    """Drop what no output depends on, inside of control flow too."""
    prune(model)
    if trim(model):
        prune(model)


def narrow_places(model: ir.Model, op: Builder) -> int:
    """Replace each MaxPool whose indices serve only its gradient. Returns how many there were."""
    nodes = [n for n in walk.nodes(model.graph) if _is_narrower(n)]
    for node in nodes:
        _replace(op, node)
    return len(nodes)


def _is_narrower(node: ir.Node) -> bool:
    """Whether the indices of a node can be counted in a type smaller than theirs."""
    if node.domain not in ("", "ai.onnx") or node.op_type != "MaxPool" or len(node.outputs) < 2:
        return False
    x, indices = node.inputs[0], node.outputs[1]
    readers = {(u.node.domain, u.node.op_type, u.idx) for u in indices.uses()}
    if readers != {(DOMAIN, "MaxPoolGrad", 1)} or indices.is_graph_output():
        return False
    image = x.shape[2:] if x is not None and x.shape is not None else (None,)
    sizes = [n for n in image if isinstance(n, int)]
    return len(sizes) == len(image) and place_type(math.prod(sizes)) != ir.DataType.INT64


def _replace(op: Builder, node: ir.Node) -> None:
    """Put the composite in the place of `node`; outputs and node keep their names."""
    given = {k: v for k, v in arguments(node).items() if k != "storage_order"}
    for use in node.outputs[1].uses():
        use.node.attributes["storage_order"] = ir.AttrInt64("storage_order", 0)
    with op.at(node, stage="forward", source="", prefix=node.name or ""):
        made = op.MaxPoolTraining(node.inputs[0], **given)
    stand_in(made, node)
