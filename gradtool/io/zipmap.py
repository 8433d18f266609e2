"""Outputs that are maps, as of classifiers of scikit-learn: the tensors behind them."""

from __future__ import annotations

import onnx

ZIPMAP = ("ai.onnx.ml", "ZipMap")


def leave_aside(graph: onnx.GraphProto) -> tuple[str, ...]:
    """Take out, in place, each ZipMap whose maps are outputs only; its tensor becomes the output.

    Returns a line for each.
    """
    read = {name for node in graph.node for name in node.input}
    outputs = {value.name: value for value in graph.output}
    said = []
    for node in list(graph.node):
        if (node.domain, node.op_type) != ZIPMAP or len(node.input) != 1 or len(node.output) != 1:
            continue
        output = outputs.get(node.output[0])
        if output is None or node.output[0] in read:
            continue
        said.append(f"ZipMap {node.name!r}: the output is {node.input[0]!r}, the tensor it maps")
        graph.node.remove(node)
        if node.input[0] in outputs:
            graph.output.remove(output)
            continue
        output.name = node.input[0]
        output.type.Clear()
        output.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        outputs[output.name] = output
    return tuple(said)
