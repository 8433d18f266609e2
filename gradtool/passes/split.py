"""A training graph as two models: forward, which also returns its residuals, and backward.

The residuals are then on the page: the outputs of the one file that are inputs of the other.  A
value that is only another layout of one is not saved beside it: backward lays it out again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.graph.prune import prune
from gradtool.graph.reads import reads
from gradtool.graph.stages import is_backward
from gradtool.graph.training_info import ABSENT, TrainingInfo, record
from gradtool.passes.layouts import repeat_layouts
from gradtool.passes.residuals import residuals
from gradtool.passes.second_order import is_training_graph


@dataclass(frozen=True)
class Split:
    """Two models in place of a whole step; each holds the weights that it reads.

    Attributes:
        forward: has the outputs of the model, the loss, new running statistics and `saved`.
        backward: takes `saved`, the inputs and labels it reads, and gradients of the loss or of the
            outputs; has the gradients as outputs, or with an optimizer next values of parameters.
        saved: names of the values from one to the other.

    Example:
        halves = gt.split(gt.grad(gt.load("samples/cnn.onnx")))
        gt.save(halves.forward, "forward.onnx"), gt.save(halves.backward, "backward.onnx")
    """

    forward: ir.Model
    backward: ir.Model
    saved: tuple[str, ...]

    def __repr__(self) -> str:
        parts = (f"{len(each.graph)} nodes" for each in (self.forward, self.backward))
        return f"Split({', '.join(parts)}, {len(self.saved)} values saved)"

    def _repr_html_(self) -> str:
        from gradtool.text.table import facts

        nodes = {
            "forward nodes": len(self.forward.graph),
            "backward nodes": len(self.backward.graph),
        }
        return facts("forward and backward", nodes | {"values saved": len(self.saved)})


def split(model: ir.Model) -> Split:
    """Cut a training graph in two. The model given is left as it is.

    Raises:
        UsageError: the model holds no gradients.
    """
    if not is_training_graph(model):
        raise UsageError("the model holds no gradients to split off")
    meta, model = model.meta, model.clone()
    repeat_layouts(model)
    saved = tuple(v.name or "" for v in residuals(model).values)
    late = {v.name or "" for v in model.graph.outputs if _is_late(v)}
    names = dict.fromkeys(v.name or "" for v in (*model.graph.inputs, *model.graph.outputs))
    record(model, whole=(*names, *saved), saved=saved)
    halves = _forward(model, late, saved), _backward(model, late, saved)
    for half in halves:
        half.meta.update(meta)
    return Split(*halves, saved)


def _is_late(value: ir.Value) -> bool:
    """Whether backward computes a value: a gradient, or the next value of a parameter."""
    node = value.producer()
    return node is not None and is_backward(node)


def _forward(model: ir.Model, late: set[str], saved: tuple[str, ...]) -> ir.Model:
    forward = model.clone()
    graph = forward.graph
    values = {v.name: v for node in graph for v in node.outputs}
    kept = [v for v in graph.outputs if v.name not in late]
    kept += [values[name] for name in saved if values[name] not in kept]
    _return_only(graph, kept)
    prune(forward)
    _drop_inputs(graph, {v.name for n in model.graph if is_backward(n) for v in reads(n)})
    prune(forward)
    _note(forward, gradients={}, buffers=ABSENT, optimizer=None)
    return forward


def _backward(model: ir.Model, late: set[str], saved: tuple[str, ...]) -> ir.Model:
    backward = model.clone()
    graph = backward.graph
    values = {v.name: v for node in graph for v in node.outputs}
    _return_only(graph, [v for v in graph.outputs if v.name in late])
    for name in saved:
        given = ir.Value(name=name, shape=values[name].shape, type=values[name].type)
        given.metadata_props.update(values[name].metadata_props)  # the sizes in a shape
        values[name].replace_all_uses_with(given)
        graph.inputs.append(given)
    prune(backward)
    _drop_inputs(graph, {v.name for v in graph.inputs})
    prune(backward)
    _note(backward, loss=None)
    return backward


def _note(half: ir.Model, **facts: Any) -> None:
    """Update the metadata to the inputs of a half and the next values it returns."""
    info, taken = TrainingInfo.of(half), {v.name for v in half.graph.inputs}
    returned = {v.name for v in half.graph.outputs}
    defaults = {name: default for name, default in info.defaults.items() if name in taken}
    state = {name: new for name, new in info.state.items() if new in returned}
    replace(info, defaults=defaults or ABSENT, state=state or ABSENT, **facts).write(half)


def _return_only(graph: ir.Graph, outputs: list[ir.Value]) -> None:
    graph.outputs.clear()
    graph.outputs.extend(outputs)


def _drop_inputs(graph: ir.Graph, names: set[str | None]) -> None:
    """Leave out the inputs among `names` without a reader."""
    kept = [v for v in graph.inputs if v.uses() or v.is_graph_output() or v.name not in names]
    graph.inputs.clear()
    graph.inputs.extend(kept)
