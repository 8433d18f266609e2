"""Tensors put into their places in a file that has none of their names."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from gradtool.graph.training_info import Location
from gradtool.io import walk


def node_of(model: onnx.ModelProto, location: Location) -> onnx.NodeProto | None:
    """The node of a tensor; None if there is none such, or no telling which."""
    nodes = [n for n in walk.nodes(model.graph.node) if location.node in n.output and location.node]
    if len(nodes) != 1:
        return None
    node = nodes[0]
    named = {attribute.name for attribute in node.attribute}
    fits = location.attribute in named if location.attribute else location.slot < len(node.input)
    return node if fits else None


def put(model: onnx.ModelProto, name: str, location: Location, array: np.ndarray[Any, Any]) -> bool:
    """Put an array into its place; whether there is such a place."""
    node = node_of(model, location)
    if node is None:
        return False
    if location.attribute:
        return _into_attribute(node, location, array)
    graph = model.graph
    copies = [n for n in graph.node if n.op_type == "Identity" and list(n.output) == [name]]
    for copy in copies:
        graph.node.remove(copy)
    made = graph.initializer.add()
    made.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), name))
    node.input[location.slot] = name
    return True


def _into_attribute(node: onnx.NodeProto, location: Location, array: np.ndarray[Any, Any]) -> bool:
    attribute = next(each for each in node.attribute if each.name == location.attribute)
    flat = array.T.ravel()
    numbers = np.concatenate([-flat, flat]) if location.mirrored else flat
    if len(attribute.floats) != len(numbers):
        return False
    attribute.floats[:] = numbers.tolist()
    return True
