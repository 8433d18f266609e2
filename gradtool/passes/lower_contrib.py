"""Operators of com.microsoft, emitted by exporters and optimizers, in standard operators.

One function per operator: it gets the builder and the node, and returns replacements of the node's
outputs, as many as it has.

Source: the operators' documentation in onnxruntime (docs/ContribOperators.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph import walk
from gradtool.graph.families import CONTRIB as DOMAIN
from gradtool.graph.metadata import LITERAL
from gradtool.graph.typed import Node, as_node
from gradtool.passes import _contrib_attention as attention
from gradtool.passes import _contrib_dense as dense
from gradtool.passes import _contrib_low_bits as low_bits
from gradtool.passes import _contrib_quantized as quantized

Rule = Callable[[Builder, Node], Sequence[ir.Value | None]]


def is_contrib(node: ir.Node) -> bool:
    """Whether a node can be replaced."""
    return (node.domain, node.op_type) in RULES


def lower_contrib(model: ir.Model) -> int:
    """Replace them all, in place; return how many there were. Shapes must have been inferred.

    Raises:
        ModelError: a node uses a feature that training graphs do not have.
    """
    everything = list(walk.nodes(model.graph))
    nodes = [n for n in everything if is_contrib(n)]
    if not nodes:
        return 0
    op, behind = Builder(model), False
    with literals(model):
        for node in everything:
            if is_contrib(node):
                replace(op, node, RULES[node.domain, node.op_type])
                behind = behind or node.op_type in QUANTIZED
            elif behind and not node.domain and all(map(_is_known, node.inputs)):
                op.infer(node)  # the library guesses the shapes of unknown operators
    if not any(n.domain == DOMAIN for n in walk.nodes(model.graph)):
        model.graph.opset_imports.pop(DOMAIN, None)
    return len(nodes)


@contextmanager
def literals(model: ir.Model) -> Iterator[None]:
    """Note the constants that get into a model meanwhile: numbers that nobody trains."""
    known = set(model.graph.initializers)
    yield
    for name, value in model.graph.initializers.items():
        if name not in known:
            value.metadata_props[LITERAL] = "1"


def _is_known(value: ir.Value | None) -> bool:
    return value is None or (value.dtype is not None and value.shape is not None)


def replace(op: Builder, node: ir.Node, rule: Rule) -> None:
    """Replace a node by the result of its rule; outputs keep their names."""
    with op.at(node, stage="forward", source="", prefix=node.name or node.op_type), op.arithmetic():
        start = len(op.emitted)
        made = rule(op, as_node(node))
        new = set(op.emitted[start:])
        for index, before in enumerate(node.outputs):
            after = made[index] if index < len(made) else None
            if after is None:
                if before.uses() or before.is_graph_output():
                    raise attention.refused(node, f"its output {index} is read")
                continue
            if after.producer() not in new or after in made[:index]:
                after = op.Identity(after)
            name, before.name = before.name, None
            after.name, before.type = name or after.name, after.type
            before.replace_all_uses_with(after, replace_graph_outputs=True)
    assert node.graph is not None  # noqa: S101 - a node found in a graph
    node.graph.remove(node, safe=True)


QUANTIZED = quantized.CONTRIB | low_bits.CONTRIB
RULES: dict[tuple[str, str], Rule] = {
    (DOMAIN, "BiasGelu"): dense.bias_gelu,
    (DOMAIN, "FastGelu"): dense.fast_gelu,
    (DOMAIN, "FusedMatMul"): dense.fused_matmul,
    (DOMAIN, "Gelu"): dense.plain_gelu,
    (DOMAIN, "GroupQueryAttention"): attention.group_query_attention,
    (DOMAIN, "MultiHeadAttention"): attention.multi_head_attention,
    (DOMAIN, "QuickGelu"): dense.quick_gelu,
    (DOMAIN, "RotaryEmbedding"): attention.rotary_embedding,
    (DOMAIN, "SimplifiedLayerNormalization"): dense.simplified_layer_norm,
    ("", "SimplifiedLayerNormalization"): dense.simplified_layer_norm,
    (DOMAIN, "SkipLayerNormalization"): dense.skip_layer_norm,
    (DOMAIN, "SkipSimplifiedLayerNormalization"): dense.skip_simplified_layer_norm,
    **{(DOMAIN, name): rule for name, rule in QUANTIZED.items()},
}
