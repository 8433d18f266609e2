"""Training graphs written by hand: which nodes are forward, and where gradients come from."""

from __future__ import annotations

import onnx_ir as ir
from graphs import parse

from gradtool.graph.metadata import STAGE
from gradtool.graph.stages import is_hoisted
from gradtool.graph.training_info import record
from gradtool.workloads.save_less import save_less

FORWARD = "a = Exp (x) b = Tanh (x) y = Add (a, b)"


def training(backward: str, size: str = "1000") -> ir.Model:
    """A graph with the gradient `g` as an input and `dx` as its result."""
    text = f"g (float[{size}, 8] x, float[{size}, 8] g) => (y, dx) {{ {FORWARD} {backward} }}"
    return staged(text)


def staged(text: str, forward: str = "a b y") -> ir.Model:
    """A graph with the head `g` whose nodes that compute `forward` are that, others backward."""
    model, early = parse(text), forward.split()
    for node in model.graph:
        node.name = node.outputs[0].name
        node.metadata_props[STAGE] = "forward" if node.name in early else "backward"
    record(model, heads=("g",), gradients={"x": "dx"})
    return model


def saved_less(model: ir.Model, **options: bool) -> ir.Model:
    """A copy of a model that keeps less of forward."""
    copy = model.clone()
    save_less(copy, **options)
    return copy


def hoisted(model: ir.Model) -> list[str | None]:
    """The names of the nodes that were moved to forward."""
    return [n.name for n in model.graph if is_hoisted(n)]
