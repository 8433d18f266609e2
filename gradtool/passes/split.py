"""A training graph as two models: forward, which also returns what is saved, and backward.

What backward keeps of the forward pass is then on the page: the outputs of the one file that are
inputs of the other.  A value of which backward wants the shape only is not saved; its shape is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.passes.backward import reads
from gradtool.passes.prune import prune
from gradtool.passes.second_order import GRADIENTS, LOSS, is_training_graph

SAVED = "gradtool.saved"
STATE = "gradtool.state"
BUFFERS = "gradtool.buffers"


@dataclass(frozen=True)
class Split:
    """Two models that compute what the whole did; `saved` names what goes from one to the other.

    `forward` has the outputs of the model, the loss, new running statistics and `saved`;
    `backward` takes `saved`, the inputs and labels it reads, and gradients of the loss or of the
    outputs, and has the gradients as outputs.  Each holds the weights that it reads.
    """

    forward: ir.Model
    backward: ir.Model
    saved: tuple[str, ...]


def split(model: ir.Model) -> Split:
    """Cut a training graph in two. The model given is left as it is.

    Raises:
        UsageError: the model holds no gradients.
    """
    if not is_training_graph(model):
        raise UsageError("the model holds no gradients to split off")
    model = model.clone()
    _hoist_shapes(model.graph)
    saved = tuple(v.name or "" for v in _crossing(model.graph))
    gradients = set(json.loads(model.metadata_props[GRADIENTS]).values())
    return Split(_forward(model, gradients, saved), _backward(model, gradients, saved), saved)


def _is_backward(node: ir.Node) -> bool:
    return node.metadata_props.get("gradtool.stage") == "backward"


def _hoist_shapes(graph: ir.Graph) -> None:
    """Let forward take the shapes of values of which backward reads nothing else."""
    asking = [n for n in graph if _is_backward(n) and _asks_shape(n)]
    skipped = set(asking)
    rest = (n for n in graph if _is_backward(n) and n not in skipped)
    data = {v for node in rest for v in reads(node)}
    for node in asking:
        (value,) = node.inputs
        producer = value.producer() if value is not None else None
        if value not in data and not (producer is not None and _is_backward(producer)):
            node.metadata_props["gradtool.stage"] = "forward"


def _asks_shape(node: ir.Node) -> bool:
    return node.domain in ("", "ai.onnx") and node.op_type in ("Shape", "Size")


def _crossing(graph: ir.Graph) -> list[ir.Value]:
    """The results of forward nodes that backward nodes read, in the order of the first reader."""
    read = (v for node in graph if _is_backward(node) for v in reads(node))
    return list(dict.fromkeys(v for v in read if _is_result(v)))


def _is_result(value: ir.Value) -> bool:
    """Whether a forward node computes a value, so that it has to be saved."""
    node = value.producer()
    return node is not None and node.op_type != "Constant" and not _is_backward(node)


def _forward(model: ir.Model, gradients: set[str], saved: tuple[str, ...]) -> ir.Model:
    forward = model.clone()
    graph = forward.graph
    values = {v.name: v for node in graph for v in node.outputs}
    kept = [v for v in graph.outputs if v.name not in gradients]
    kept += [values[name] for name in saved if values[name] not in kept]
    _return_only(graph, kept)
    prune(forward)
    _drop_inputs(graph, {v.name for n in model.graph if _is_backward(n) for v in reads(n)})
    forward.metadata_props[GRADIENTS] = "{}"
    forward.metadata_props[SAVED] = json.dumps(saved)
    forward.metadata_props.pop(BUFFERS, None)
    return forward


def _backward(model: ir.Model, gradients: set[str], saved: tuple[str, ...]) -> ir.Model:
    backward = model.clone()
    graph = backward.graph
    values = {v.name: v for node in graph for v in node.outputs}
    _return_only(graph, [v for v in graph.outputs if v.name in gradients])
    for name in saved:
        given = ir.Value(name=name, shape=values[name].shape, type=values[name].type)
        values[name].replace_all_uses_with(given)
        graph.inputs.append(given)
    prune(backward)
    _drop_inputs(graph, {v.name for v in graph.inputs})
    backward.metadata_props[SAVED] = json.dumps(saved)
    for key in (LOSS, STATE):
        backward.metadata_props.pop(key, None)
    return backward


def _return_only(graph: ir.Graph, outputs: list[ir.Value]) -> None:
    graph.outputs.clear()
    graph.outputs.extend(outputs)


def _drop_inputs(graph: ir.Graph, names: set[str | None]) -> None:
    """Leave out the inputs among `names` that nothing reads."""
    kept = [v for v in graph.inputs if v.uses() or v.is_graph_output() or v.name not in names]
    graph.inputs.clear()
    graph.inputs.extend(kept)
