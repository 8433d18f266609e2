"""Omissions from a checked model: weights, and scales that a checker rounds."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from fractions import Fraction

import numpy as np
import onnx

from gradtool.io import walk
from gradtool.operators.resize import fraction

# Bytes. Shorter tensors may hold sizes, which shapes are inferred from.
LARGEST_KEPT = 4096


def leave_out_weights(top: onnx.GraphProto, given: AbstractSet[str]) -> set[str]:
    """Make inputs of all large tensors, of subgraphs as well, and of those elsewhere.

    Returns their names; `given` ones are inputs already.  A subgraph keeps its results: it may
    return nothing from outside.
    """
    made: dict[str, onnx.ValueInfoProto] = {}
    for graph in list(walk.graphs(top)):
        returned = set() if graph is top else {value.name for value in graph.output}
        heavy = [t for t in graph.initializer if _is_heavy(t) and t.name not in returned]
        if not heavy:
            continue
        names = {tensor.name for tensor in heavy}
        kept = [tensor for tensor in graph.initializer if tensor.name not in names]
        for t in heavy:
            made[t.name] = onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims)
        del graph.initializer[:]
        graph.initializer.extend(kept)
    top.input.extend(value for name, value in made.items() if name not in given)
    return set(made)


def leave_out_scales(proto: onnx.ModelProto) -> None:
    """Make inputs of the inexact scales of Resize, as 0.7 in float32."""
    top = proto.graph
    graphs = list(walk.graphs(top))
    nodes = [node for graph in graphs for node in graph.node if node.op_type == "Resize"]
    names = {name for node in nodes for name in node.input[2:3] if name}
    for graph in graphs if names else ():
        held = {t.name: t for t in graph.initializer} | {
            node.output[0]: a.t for node in graph.node if node.op_type == "Constant"
            for a in node.attribute if a.name == "value"
        }  # fmt: skip
        rounded = {name: t for name, t in held.items() if name in names and _is_rounded(t)}
        if not rounded:
            continue
        given = {value.name for value in top.input}
        top.input.extend(
            onnx.helper.make_tensor_value_info(name, t.data_type, t.dims)
            for name, t in rounded.items()
            if name not in given
        )
        for field in (graph.initializer, graph.node):
            kept = [item for item in field if _made_by(item) not in rounded]
            del field[:]
            field.extend(kept)


def _made_by(item: onnx.TensorProto | onnx.NodeProto) -> str:
    return item.name if isinstance(item, onnx.TensorProto) else next(iter(item.output), "")


def _is_rounded(scales: onnx.TensorProto) -> bool:
    values = onnx.numpy_helper.to_array(scales).astype(np.float32).ravel()
    return any(fraction(s) != Fraction(float(s)) for s in values if np.isfinite(s))


def _is_heavy(tensor: onnx.TensorProto) -> bool:
    external = tensor.data_location == onnx.TensorProto.EXTERNAL
    return external or tensor.ByteSize() > LARGEST_KEPT
