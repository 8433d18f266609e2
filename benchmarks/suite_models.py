"""The single-operator tests of ONNX's node suite as models of tensors, ready to differentiate."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from gradtool import io, shapes
from gradtool.io.definitions import expand_definitions
from gradtool.ops import kernels as kernel

Arrays = dict[str, np.ndarray[Any, Any]]
FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE}

# Float inputs that say what shape or which numbers are wanted: no data flows from them.
SETTINGS = {
    "Dropout": (1,),
    "MelWeightMatrix": (3, 4),
    "OneHot": (0, 1),
    "Resize": (1, 2),
    "Upsample": (1,),
}


@dataclass(frozen=True)
class Test:
    """A single-operator model, and by name the arrays of its inputs and its outputs."""

    name: str
    model: onnx.ModelProto
    inputs: dict[str, Any]
    outputs: dict[str, Any]

    @property
    def op(self) -> str:
        """The operator, with its domain unless it is the standard one."""
        node = self.model.graph.node[0]
        return f"{node.domain}::{node.op_type}" if node.domain else node.op_type


@cache
def tests() -> dict[str, Test]:
    """The tests of one node with at least one float input (alone, in a sequence or optional)."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    return {
        t.name: _test(t)
        for t in found
        if t.model is not None
        and len(t.model.graph.node) == 1
        and any(_element(v.type) in FLOATS for v in t.model.graph.input)
    }


def _test(found: Any) -> Test:
    graph = found.model.graph
    given, expected = found.data_sets[0]
    inputs = {v.name: _array(a) for v, a in zip(graph.input, given, strict=False)}
    outputs = {v.name: _array(a) for v, a in zip(graph.output, expected, strict=False)}
    return Test(found.name, found.model, inputs, outputs)


def _array(given: Any) -> Any:
    """An array of whatever stands for one in a data set; sequences as lists, None as it is."""
    if isinstance(given, TensorProto):
        return numpy_helper.to_array(given)
    if isinstance(given, (list, tuple)):
        return [_array(item) for item in given]
    return given if given is None else np.asarray(given)


def _element(kind: onnx.TypeProto) -> int:
    name = kind.WhichOneof("value")
    if name in ("sequence_type", "optional_type"):
        return _element(getattr(kind, name).elem_type)
    return int(kind.tensor_type.elem_type)


def prepared(test: Test, *, newest: int | None = None) -> tuple[ir.Model, Arrays]:
    """The model at an opset that rules know, what is no float made constant, and its inputs.

    Sequences and optional values are taken apart, so that all inputs and outputs are tensors.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(test.model)
    proto.ir_version = max(proto.ir_version, 4)
    settings = SETTINGS.get(test.op, ())
    slots = {n: i for i, n in enumerate(proto.graph.node[0].input)}
    _pin_randomness(proto)
    if newest is not None:
        _lower(proto, newest)
    arrays: Arrays = {}
    for value in list(proto.graph.input):
        proto.graph.input.remove(value)
        constant = slots.get(value.name) in settings
        _open_input(proto.graph, value.name, value.type, test.inputs[value.name], arrays, constant)
    for value in list(proto.graph.output):
        _open_output(proto.graph, value, test.outputs.get(value.name))
    model = io.from_proto(proto)
    expand_definitions(model, lambda *operator: kernel.find(*operator) is not None)
    shapes.infer(model)
    return model, arrays


def _open_input(
    graph: onnx.GraphProto,
    name: str,
    kind: onnx.TypeProto,
    given: Any,
    arrays: Arrays,
    constant: bool,  # noqa: FBT001
) -> None:
    """Give the graph an input, or an initializer if it is no float; nodes for other types."""
    which = kind.WhichOneof("value")
    made: list[onnx.NodeProto] = []
    if which == "optional_type" and given is None:
        made = [helper.make_node("Optional", [], [name], type=kind.optional_type.elem_type)]
    elif which == "optional_type":
        inner = kind.optional_type.elem_type
        _open_input(graph, f"{name}_value", inner, given, arrays, constant)
        made = [helper.make_node("Optional", [f"{name}_value"], [name])]
    elif which == "sequence_type":
        inner = kind.sequence_type.elem_type
        parts = [f"{name}_{index}" for index in range(len(given))]
        for part, array in zip(parts, given, strict=True):
            _open_input(graph, part, inner, array, arrays, constant)
        made = [helper.make_node("SequenceConstruct", parts, [name])]
        if not parts:
            element = inner.tensor_type.elem_type
            made = [helper.make_node("SequenceEmpty", [], [name], dtype=element)]
    elif constant or kind.tensor_type.elem_type not in FLOATS:
        tensor = numpy_helper.from_array(given, name)
        if kind.tensor_type.elem_type != TensorProto.STRING:
            tensor.data_type = kind.tensor_type.elem_type
        graph.initializer.append(tensor)
    else:
        graph.input.append(
            helper.make_tensor_value_info(name, kind.tensor_type.elem_type, given.shape)
        )
        arrays[name] = given
    for node in reversed(made):
        graph.node.insert(0, node)
    _sort(graph)


def _sort(graph: onnx.GraphProto) -> None:
    """Put the nodes that make inputs in the order in which they read each other."""
    nodes = list(graph.node)
    made = {o for n in nodes for o in n.output}
    known: set[str] = set()
    del graph.node[:]
    while nodes:
        node = next(n for n in nodes if not (set(n.input) & made) - known)
        nodes.remove(node)
        known.update(node.output)
        graph.node.append(node)


def _open_output(graph: onnx.GraphProto, value: onnx.ValueInfoProto, expected: Any) -> None:
    """Replace an output that is an optional value or a sequence by the tensors in it."""
    which = value.type.WhichOneof("value")
    if which in (None, "tensor_type") or expected is None:
        return
    graph.output.remove(value)
    name, kind = value.name, value.type
    if which == "optional_type":
        inner = onnx.ValueInfoProto(name=f"{name}_value", type=kind.optional_type.elem_type)
        graph.node.append(helper.make_node("OptionalGetElement", [name], [inner.name]))
        graph.output.append(inner)
        _open_output(graph, inner, expected)
        return
    for index, array in enumerate(expected):
        at = numpy_helper.from_array(np.asarray(index, np.int64), f"{name}_at_{index}")
        graph.initializer.append(at)
        graph.node.append(helper.make_node("SequenceAt", [name, at.name], [f"{name}_{index}"]))
        element = kind.sequence_type.elem_type.tensor_type.elem_type
        graph.output.append(
            helper.make_tensor_value_info(f"{name}_{index}", element, np.shape(array))
        )


def _pin_randomness(proto: onnx.ModelProto) -> None:
    """Give generators a seed, so that each run draws the same."""
    node = proto.graph.node[0]
    version = next(e.version for e in proto.opset_import if e.domain == node.domain)
    kinds = onnx.defs.get_schema(node.op_type, version, node.domain).attributes
    if "seed" in kinds and not any(a.name == "seed" for a in node.attribute):
        value = 3.0 if kinds["seed"].type == onnx.defs.OpSchema.AttrType.FLOAT else 3
        node.attribute.append(onnx.helper.make_attribute("seed", value))


def _lower(proto: onnx.ModelProto, newest: int) -> None:
    """Stamp a model with the newest opset that its operator already had, if that is `newest`."""
    node = proto.graph.node[0]
    for entry in proto.opset_import:
        if entry.domain == node.domain == "" and entry.version > newest:
            since = onnx.defs.get_schema(node.op_type, entry.version).since_version
            entry.version = max(newest, since)
            proto.ir_version = min(proto.ir_version, 13)
