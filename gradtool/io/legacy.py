"""Repair of old operators that onnx's converter keeps although their meaning changed.

PRelu below 7    a vector of slopes belongs to the channels, not to the last axis
Scan of 8        leading batch axis, which later ones don't have
"""

from __future__ import annotations

import onnx
from onnx import helper

from gradtool.errors import ModelError


def repair(model: onnx.ModelProto, version: int) -> None:
    """Rewrite in place the operators of `version` with another meaning since.

    Raises:
        ModelError: it cannot be said otherwise.
    """
    if version < 7:
        _slopes(model)
    if version == 8:
        _scans(model.graph)


def _slopes(model: onnx.ModelProto) -> None:
    if not any(node.op_type == "PRelu" for node in model.graph.node):
        return
    ranks = _ranks(model)
    nodes = list(model.graph.node)
    del model.graph.node[:]
    for node in nodes:
        if node.op_type == "PRelu" and ranks.get(node.input[1]) == 1:
            rank = ranks.get(node.input[0])
            if rank is None:
                raise ModelError(f"PRelu node {node.name!r}: the rank of its input isn't known")
            slope = f"{node.output[0]}/slope"
            axes = list(range(1, rank - 1))
            if axes:
                model.graph.node.append(
                    helper.make_node("Unsqueeze", [node.input[1]], [slope], axes=axes)
                )
                node.input[1] = slope
        model.graph.node.append(node)


def _ranks(model: onnx.ModelProto) -> dict[str, int]:
    graph = onnx.shape_inference.infer_shapes(model).graph
    known = (*graph.input, *graph.value_info, *graph.output)
    ranks = {
        v.name: len(v.type.tensor_type.shape.dim) for v in known
        if v.type.tensor_type.HasField("shape")
    }  # fmt: skip
    return ranks | {t.name: len(t.dims) for t in graph.initializer}


def _scans(graph: onnx.GraphProto) -> None:
    """Replace a Scan of 8 by one over the batch, each turn a Scan over the sequence.

    The converter takes away the empty first input of both.
    """
    for node in graph.node:
        if node.op_type != "Scan" or node.domain:
            continue
        given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.input[0]:
            raise ModelError(f"Scan node {node.name!r} of opset 8: sequence lengths are not known")
        body, count = given["body"], given["num_scan_inputs"]
        names = [f"{node.output[0]}/{kind}{i}" for kind, values in (
            ("in", node.input[1:]), ("out", node.output)) for i, _ in enumerate(values)
        ]  # fmt: skip
        inputs, outputs = names[: len(node.input) - 1], names[len(node.input) - 1 :]
        inner = helper.make_node(
            "Scan", ["", *inputs], outputs, body=body, num_scan_inputs=count,
            scan_input_directions=given.get("directions", [0] * count),
        )  # fmt: skip
        batch = helper.make_graph(
            [inner],
            f"{node.name or node.output[0]}/batch",
            [_info(n, v) for n, v in zip(inputs, body.input, strict=True)],
            [_info(n, v) for n, v in zip(outputs, body.output, strict=True)],
        )
        del node.attribute[:]
        node.attribute.append(helper.make_attribute("body", batch))
        node.attribute.append(helper.make_attribute("num_scan_inputs", len(inputs)))


def _info(name: str, value: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    """A value of a turn of the outer Scan; the converter would cut a shape that is declared."""
    return helper.make_tensor_value_info(name, value.type.tensor_type.elem_type, None)
