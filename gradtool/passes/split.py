"""A training graph as two models: forward, which also returns what is saved, and backward.

What backward keeps of the forward pass is then on the page: the outputs of the one file that are
inputs of the other.  A value that is only another layout of one is not saved beside it: backward
lays it out again.  Of a value of which backward wants the shape only, that is saved, or read off
something else.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.exec import kernel as kernels
from gradtool.names import Names
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
    _repeat_layouts(model)
    _hoist_shapes(model.graph)
    saved = tuple(v.name or "" for v in _crossing(model.graph))
    gradients = set(json.loads(model.metadata_props[GRADIENTS]).values())
    return Split(_forward(model, gradients, saved), _backward(model, gradients, saved), saved)


def _is_backward(node: ir.Node) -> bool:
    return node.metadata_props.get("gradtool.stage") == "backward"


# -------------------------------------------------------------------------------- layouts

GAPLESS = ("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")
STRIDED = ("Slice", "Split", "Transpose")


def _repeat_layouts(model: ir.Model) -> None:
    """Give backward its own copy of the layout operators whose results it reads.

    An operator whose result has gaps is repeated only if all readers take these.  Otherwise the
    executor makes a gapless array of it, which is what has to be saved: the bits of a matrix
    product depend on how its operands lie.
    """
    graph, names = model.graph, Names.of(model)
    place = {node: index for index, node in enumerate(graph)}
    for node in reversed(list(graph)):
        if _is_backward(node) or not _may_repeat(model, node):
            continue
        uses = [u for v in node.outputs for u in v.uses() if u.node in place]
        uses = [u for u in uses if _is_backward(u.node)]
        if not uses:
            continue
        first = min((u.node for u in uses), key=place.__getitem__)
        copy = _copy(node, names)
        graph.insert_before(first, copy)
        place[copy] = place[first]
        for old, new in zip(node.outputs, copy.outputs, strict=True):
            for use in list(old.uses()):
                if use.node in place and use.node is not copy and _is_backward(use.node):
                    use.node.replace_input_with(use.idx, new)


def _may_repeat(model: ir.Model, node: ir.Node) -> bool:
    if node.domain not in ("", "ai.onnx") or any(v.is_graph_output() for v in node.outputs):
        return False
    if any(v is not None and v.const_value is None for v in node.inputs[1:]):
        return False
    users = [use.node for v in node.outputs for use in v.uses()]
    if any(user.graph is not model.graph for user in users):
        return False
    strided = node.op_type in STRIDED and all(_takes_gaps(model, user) for user in users)
    return strided or node.op_type in GAPLESS


def _takes_gaps(model: ir.Model, node: ir.Node) -> bool:
    version = model.graph.opset_imports.get(node.domain, 1)
    kernel = kernels.find(node.domain, node.op_type, version)
    return kernel is not None and kernel.strided


def _copy(node: ir.Node, names: Names) -> ir.Node:
    made = ir.Node(
        node.domain,
        node.op_type,
        node.inputs,
        node.attributes.values(),
        num_outputs=len(node.outputs),
        name=names.fresh(f"{node.name}/again"),
        metadata_props={"gradtool.stage": "backward", "gradtool.source": node.name or ""},
    )
    for old, new in zip(node.outputs, made.outputs, strict=True):
        new.name = names.fresh(f"{old.name}_again")
        new.shape, new.type = old.shape, old.type
    return made


# --------------------------------------------------------------------------------- shapes


def _hoist_shapes(graph: ir.Graph) -> None:
    """Take the shapes of values of which backward reads nothing else from somewhere else.

    That is a value that backward reads anyway, of the same size there; else forward passes the
    shape on.
    """
    asking = [n for n in graph if _is_backward(n) and _asks_shape(n)]
    skipped = set(asking)
    rest = (n for n in graph if _is_backward(n) and n not in skipped)
    data = {v: None for node in rest for v in reads(node) if not _is_gradient(v)}
    for node in asking:
        (value,) = node.inputs
        if value is None or value in data or _is_gradient(value):
            continue
        if not any(_ask_instead(node, value, other) for other in data):
            node.metadata_props["gradtool.stage"] = "forward"


def _asks_shape(node: ir.Node) -> bool:
    return node.domain in ("", "ai.onnx") and node.op_type in ("Shape", "Size")


def _is_gradient(value: ir.Value) -> bool:
    node = value.producer()
    return node is not None and _is_backward(node)


def _ask_instead(node: ir.Node, value: ir.Value, other: ir.Value) -> bool:
    """Let a node ask for the shape of another value, if that is provably the same."""
    if value.shape is None or other.shape is None or node.op_type != "Shape":
        return False
    rank = len(value.shape)
    start, stop, _ = slice(
        node.attributes.get_int("start", 0), node.attributes.get_int("end", rank)
    ).indices(rank)
    sizes = list(value.shape)[start:stop]
    if any(isinstance(d, ir.SymbolicDim) and d.value is None for d in sizes):
        return False
    there = list(other.shape)
    for first in range(len(there) - len(sizes) + 1):
        if there[first : first + len(sizes)] == sizes:
            node.replace_input_with(0, other)
            node.attributes["start"] = ir.AttrInt64("start", first)
            node.attributes["end"] = ir.AttrInt64("end", first + len(sizes))
            return True
    return False


# ------------------------------------------------------------------------------- the halves


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
