"""Older forms of operators that onnx's converter refuses or gets wrong, in later words.

    BatchNormalization < 14   in training mode (by its many outputs); statistics per element
    GroupNormalization < 21   scale and bias per group
    Hardmax < 13              over all axes from `axis` on
    Resize 10, Upsample       no half pixels; nearest rounds down, or up where it shrinks
    Resize < 13               tf_half_pixel_for_nn

`prepare` rewrites a model before conversion, `finish` the converted one.

Source: the forms are those of onnx's changelog; Resize of opset 10, which it leaves open, is as
onnxruntime 1.31 computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from gradtool.errors import ModelError
from gradtool.io.walk import STANDARD

Nodes = list[onnx.NodeProto]
ROUNDED_DOWN = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
ROUNDED_UP = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "ceil"}


# What nodes are given once they have their newer form: by first output, the attributes for each
# node that writes one of that name, in the order of the file.
Patches = dict[str, list[dict[str, Any]]]


def prepare(model: onnx.ModelProto, version: int) -> Patches:
    """Rewrite in place the forms unfit for the converter; return the patches for `finish`.

    Raises:
        ModelError: an old form cannot be said in a newer one.
    """
    chosen = {op: made for op, (below, made) in _ADAPTERS.items() if version < below}
    if not any(node.op_type in chosen for graph in _graphs(model.graph) for node in graph.node):
        return {}
    state = _State(model, version)
    for graph in reversed(list(_graphs(model.graph))):  # inner graphs first: nodes are copied
        nodes = list(graph.node)
        del graph.node[:]
        for node in nodes:
            made = chosen.get(node.op_type) if node.domain in STANDARD else None
            graph.node.extend([node] if made is None else made(node, state))
    return state.patches


def finish(model: onnx.ModelProto, patches: Patches) -> None:
    """Complete the nodes left incomplete by `prepare`."""
    if not patches:
        return
    left = {name: list(found) for name, found in patches.items()}
    for graph in _graphs(model.graph):
        for node in graph.node:
            waiting = left.get(node.output[0]) if node.output else None
            if waiting:
                _set(node, **waiting.pop(0))


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _graphs(attribute.g)


def _set(node: onnx.NodeProto, **attributes: Any) -> None:
    kept = [a for a in node.attribute if a.name not in attributes]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items())


def _get(node: onnx.NodeProto, name: str, default: Any) -> Any:
    found = next((a for a in node.attribute if a.name == name), None)
    if found is None:
        return default
    value = helper.get_attribute_value(found)
    return value.decode() if isinstance(value, bytes) else value


@dataclass
class _State:
    """The known facts of a model during rewriting."""

    model: onnx.ModelProto
    version: int
    patches: Patches = field(default_factory=dict)

    def __post_init__(self) -> None:
        graphs = list(_graphs(self.model.graph))
        values = [v for g in graphs for v in (*g.input, *g.output, *g.value_info)]
        self.ranks = {
            v.name: len(v.type.tensor_type.shape.dim)
            for v in values
            if v.type.tensor_type.HasField("shape")
        }
        self.constants = {t.name: t for g in graphs for t in g.initializer}
        self.taken = {n for g in graphs for node in g.node for n in (*node.input, *node.output)}
        self.taken |= {v.name for v in values} | set(self.constants)
        self.read = {n for g in graphs for node in g.node for n in node.input}
        self.read |= {v.name for g in graphs for v in g.output}
        for node in (n for g in graphs for n in g.node if n.op_type == "Constant"):
            self.constants.update((node.output[0], a.t) for a in node.attribute if a.HasField("t"))

    def fresh(self, name: str) -> str:
        made, number = name, 0
        while made in self.taken:
            number += 1
            made = f"{name}_{number}"
        self.taken.add(made)
        return made

    def constant(self, name: str) -> np.ndarray[Any, Any] | None:
        tensor = self.constants.get(name)
        if tensor is None or tensor.data_location == onnx.TensorProto.EXTERNAL:
            return None
        return numpy_helper.to_array(tensor)

    def later(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> None:
        self.patches.setdefault(node.output[0], []).append(attributes)


def _batch_normalization(node: onnx.NodeProto, state: _State) -> Nodes:
    trains = [name for name in node.output[1:] if name]
    if _get(node, "spatial", 1) == 0 and state.version < 9:
        if trains:
            raise ModelError(f"{_who(node)}: statistics per element cannot be trained")
        return _elementwise_normalization(node, state)
    if trains:
        if any(name in state.read for name in node.output[3:] if name):
            raise ModelError(f"{_who(node)}: its saved statistics are read")
        del node.output[3:]
        state.later(node, {"training_mode": 1})
    return [node]


def _elementwise_normalization(node: onnx.NodeProto, state: _State) -> Nodes:
    """`(x - mean) / √(var + epsilon) · scale + bias`, all of the shape `[C, …]`."""
    x, scale, bias, mean, var = node.input[:5]
    y = node.output[0]
    epsilon = np.asarray(_get(node, "epsilon", 1e-5), np.float32)
    e, v, d, c, n, s = (state.fresh(f"{y}/{k}") for k in ("epsilon", "var", "std", "x", "n", "s"))
    return [
        helper.make_node("Constant", [], [e], value=numpy_helper.from_array(epsilon, e)),
        helper.make_node("Add", [var, e], [v]),
        helper.make_node("Sqrt", [v], [d]),
        helper.make_node("Sub", [x, mean], [c]),
        helper.make_node("Div", [c, d], [n]),
        helper.make_node("Mul", [n, scale], [s]),
        helper.make_node("Add", [s, bias], [y], name=node.name),
    ]


def _group_normalization(node: onnx.NodeProto, state: _State) -> Nodes:
    """Each group is a channel of instance normalisation."""
    x, scale, bias = node.input[:3]
    y = node.output[0]
    sizes, groups, flat, shape = (state.fresh(f"{y}/{k}") for k in ("by", "groups", "n", "shape"))
    by = np.array([0, _get(node, "num_groups", 1), -1], np.int64)
    epsilon = _get(node, "epsilon", 1e-5)
    return [
        helper.make_node("Constant", [], [sizes], value=numpy_helper.from_array(by, sizes)),
        helper.make_node("Reshape", [x, sizes], [groups]),
        helper.make_node(
            "InstanceNormalization", [groups, scale, bias], [flat], name=node.name, epsilon=epsilon
        ),
        helper.make_node("Shape", [x], [shape]),
        helper.make_node("Reshape", [flat, shape], [y]),
    ]


def _hardmax(node: onnx.NodeProto, state: _State) -> Nodes:
    axis, rank = _get(node, "axis", 1), state.ranks.get(node.input[0])
    if rank is not None and axis in (rank - 1, -1):
        _set(node, axis=axis)
        return [node]
    x, y = node.input[0], node.output[0]
    rows, chosen, shape = (state.fresh(f"{y}/{k}") for k in ("rows", "chosen", "shape"))
    return [
        helper.make_node("Flatten", [x], [rows], axis=axis),
        helper.make_node("Hardmax", [rows], [chosen], name=node.name, axis=1),
        helper.make_node("Shape", [x], [shape]),
        helper.make_node("Reshape", [chosen, shape], [y]),
    ]


def _upsample(node: onnx.NodeProto, state: _State) -> Nodes:
    state.later(node, ROUNDED_DOWN)
    return [node]


def _resize(node: onnx.NodeProto, state: _State) -> Nodes:
    if state.version > 10:
        return _half_pixel(node)
    scales = state.constant(node.input[1])
    nearest = _get(node, "mode", "nearest") == "nearest"
    if not nearest or (scales is not None and np.all(scales >= 1)):
        state.later(node, ROUNDED_DOWN)
        return [node]
    if scales is not None and np.all(scales <= 1):
        state.later(node, ROUNDED_UP)
        return [node]
    return _up_then_down(node, state)


def _up_then_down(node: onnx.NodeProto, state: _State) -> Nodes:
    """A nearest Resize in two: growing axes rounded down, then shrinking ones rounded up.

    A Resize that keeps every size copies, whatever its scales are.  So that the first of the two
    does no more often than the whole, it has a last axis of one, which grows if anything shrinks.
    """
    x, scales = node.input[:2]
    y = node.output[0]
    name = {k: state.fresh(f"{y}/{k}") for k in (
        "one", "count", "first", "up", "down", "least", "less", "shrinks", "idle", "scales",
        "shape", "longer", "wide", "spread", "larger",
    )}  # fmt: skip
    known = {"one": np.ones(1, np.float32), "count": np.ones(1, np.int64), "first": np.int64(0)}
    steps: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ("Max", [scales, name["one"]], "up", {}),
        ("Min", [scales, name["one"]], "down", {}),
        ("ReduceMin", [name["down"]], "least", {"axes": [0], "keepdims": 1}),
        ("Less", [name["least"], name["one"]], "less", {}),
        ("Cast", [name["less"]], "shrinks", {"to": onnx.TensorProto.FLOAT}),
        ("Add", [name["shrinks"], name["one"]], "idle", {}),
        ("Concat", [name["up"], name["idle"]], "scales", {"axis": 0}),
        ("Shape", [x], "shape", {}),
        ("Concat", [name["shape"], name["count"]], "longer", {"axis": 0}),
        ("Reshape", [x, name["longer"]], "wide", {}),
        ("Resize", [name["wide"], name["scales"]], "spread", {"mode": "nearest"}),
        ("Gather", [name["spread"], name["first"]], "larger", {"axis": -1}),
    ]
    made = [
        helper.make_node("Constant", [], [name[k]], value=numpy_helper.from_array(np.asarray(v)))
        for k, v in known.items()
    ]
    made += [helper.make_node(op, reads, [name[to]], **given) for op, reads, to, given in steps]
    made.append(
        helper.make_node(
            "Resize", [name["larger"], name["down"]], [y], name=node.name, mode="nearest"
        )
    )
    state.later(made[-3], ROUNDED_DOWN)
    state.later(made[-1], ROUNDED_UP)
    return made


def _half_pixel(node: onnx.NodeProto) -> Nodes:
    """⌊(i + ½) / s⌋ is (i + ½) / s - ½, a half rounded up."""
    if _get(node, "coordinate_transformation_mode", "half_pixel") == "tf_half_pixel_for_nn":
        if _get(node, "mode", "nearest") != "nearest" or _get(node, "nearest_mode", "") != "floor":
            raise ModelError(f"{_who(node)}: tf_half_pixel_for_nn is known with floor only")
        rounded = {"coordinate_transformation_mode": "half_pixel"}
        _set(node, **rounded, nearest_mode="round_prefer_ceil")
    return [node]


def _who(node: onnx.NodeProto) -> str:
    return f"{node.op_type} node {node.name or node.output[0]!r}"


# By operator: the first opset that has a form the converter understands, and the way to it.
_ADAPTERS: dict[str, tuple[int, Callable[[onnx.NodeProto, _State], Nodes]]] = {
    "BatchNormalization": (14, _batch_normalization),
    "GroupNormalization": (21, _group_normalization),
    "Hardmax": (13, _hardmax),
    "Resize": (13, _resize),
    "Upsample": (10, _upsample),
}
