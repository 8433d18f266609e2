"""A training graph as a pure function: trained values, and state, are inputs without a default.

Whoever runs it feeds them, and of a whole step feeds `x` with `x_next` of the step before.
"""

from __future__ import annotations

import onnx_ir as ir

from gradtool.graph.names import Names
from gradtool.graph.training_info import TrainingInfo, record

Tensors = dict[str, ir.TensorProtocol]


def parameters_as_inputs(model: ir.Model) -> Tensors:
    """Turn parameters and state into inputs, in place; returns their contents, by name.

    They are the initializers that have a next value or a gradient; all others stay constants of
    the graph.  The next value of `x` is called `x_next`, whatever it was called, unless an input or
    another output has that name.
    """
    graph, info = model.graph, TrainingInfo.of(model)
    held: Tensors = {}
    for name in dict.fromkeys((*info.state, *info.gradients)):
        value = graph.initializers.get(name)
        if value is None or value.const_value is None:
            continue
        held[name] = value.const_value
        del graph.initializers[name]
        value.const_value = None
        if not value.is_graph_input():
            graph.inputs.append(value)
    if info.state:
        record(model, state=_renamed(model, dict(info.state)))
    return held


def _renamed(model: ir.Model, state: dict[str, str]) -> dict[str, str]:
    """By initializer, the name of its next value: `x_next` where that can be had."""
    graph = model.graph
    fixed = {v.name for v in (*graph.inputs, *graph.outputs)} | set(graph.initializers)
    names: Names | None = None
    outputs = {v.name: v for v in graph.outputs}
    for old, new in state.items():
        wanted = f"{old}_next"
        if new == wanted or wanted in fixed or new not in outputs:
            continue
        names = names or Names.of(model)
        for node in graph.all_nodes():
            for value in node.outputs:
                if value.name == wanted:
                    value.name = names.fresh(wanted)
        outputs[new].name = state[old] = wanted
        fixed.add(wanted)
    return state
