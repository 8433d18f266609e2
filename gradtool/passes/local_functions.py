"""Composite calls as calls of local functions, for files whose readers fuse or inspect them.

Every distinct use gets a function of its own, in domain `ai.gradtool` and at the model's opset:
shapes, attributes and absent inputs are spelled out in its body.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import ModelError
from gradtool.graph import walk
from gradtool.graph.attributes import arguments
from gradtool.graph.composites import DOMAIN
from gradtool.graph.metadata import CALL, CALLEE
from gradtool.ops.composites.calls import describe, emit_body, replace

LEAST_IR_VERSION = 8
SMALL = 64  # elements of a constant that a body may look into: axes, sizes, ratios


def localise(model: ir.Model) -> int:
    """Let composite calls call local functions, in place. Returns how many functions there are.

    A call whose body cannot stand alone is replaced by it.
    """
    calls = [n for n in walk.nodes(model.graph) if n.domain == DOMAIN]
    made: dict[Any, ir.Function | None] = {}
    counts: dict[str, int] = {}
    alone: list[ir.Node] = []
    for node in calls:
        key = _key(node)
        if key not in made:
            made[key] = _function(model, node, counts)
        if made[key] is None:
            alone.append(node)
    replace(Builder(model), alone, mark=True)
    for node in calls:
        function = made[_key(node)] if node not in alone else None
        if function is not None:
            model.functions[function.identifier()] = function
            _call(node, function)
    if model.functions:
        model.ir_version = max(model.ir_version, LEAST_IR_VERSION)
    return len(model.functions)


def _key(node: ir.Node) -> Any:
    """All dependences of a body."""
    inputs = tuple(None if v is None else _described(v) for v in node.inputs)
    return node.op_type, inputs, repr(sorted(arguments(node).items())), len(node.outputs)


def _described(value: ir.Value) -> Any:
    constant = _small(value)
    data = constant.tobytes() if constant is not None else None
    return value.dtype, tuple(map(str, value.shape or ())), data


def _small(value: ir.Value) -> ir.TensorProtocol | None:
    tensor = value.const_value
    if tensor is None or tensor.size > SMALL or getattr(tensor, "absent", False):
        return None
    return tensor


def _function(model: ir.Model, node: ir.Node, counts: dict[str, int]) -> ir.Function | None:
    """The body of a call as a function of its present inputs."""
    imports = {"": model.graph.opset_imports.get("", 1)}
    formals = [
        None
        if v is None
        else ir.Value(name=f"x{i}", shape=v.shape, type=v.type, const_value=_small(v))
        for i, v in enumerate(node.inputs)
    ]
    given = [v for v in formals if v is not None]
    graph = ir.Graph(given, [], nodes=[], name=node.op_type, opset_imports=imports)
    op = Builder(ir.Model(graph, ir_version=model.ir_version))
    call = ir.Node(
        DOMAIN, node.op_type, formals, node.attributes.values(), num_outputs=len(node.outputs),
        name=node.op_type,
    )  # fmt: skip
    graph.append(call)
    try:
        emit_body(op, call)
    except ModelError:
        return None
    graph.remove(call, safe=True)
    graph.outputs.extend(op.results[: len(node.outputs)])
    _constants_as_nodes(graph)
    for value in (*given, *(v for n in graph for v in n.outputs)):
        value.shape, value.type, value.const_value = None, None, None
    for inner in walk.nodes(graph):
        inner.metadata_props.clear()
    counts[node.op_type] = counts.get(node.op_type, 0) + 1
    name = f"{node.op_type}_{counts[node.op_type]}"
    return ir.Function(DOMAIN, name, graph=graph, attributes=[])


def _constants_as_nodes(graph: ir.Graph) -> None:
    """A function has no initializers."""
    first = next(iter(graph), None)
    for name, value in list(graph.initializers.items()):
        del graph.initializers[name]
        if not value.uses():
            continue
        assert value.const_value is not None and first is not None  # noqa: PT018, S101 - it is read
        attribute = ir.AttrTensor("value", value.const_value)
        node = ir.Node("", "Constant", [], [attribute], num_outputs=1, name=f"{name}/Constant")
        value.replace_all_uses_with(node.outputs[0])
        value.name, node.outputs[0].name = None, name
        graph.insert_before(first, node)


def _call(node: ir.Node, function: ir.Function) -> None:
    """Let a composite call call a function instead; its metadata names the composite."""
    node.metadata_props[CALLEE] = describe(node)
    node.metadata_props[CALL] = node.name or ""
    present = [v for v in node.inputs if v is not None]
    node.resize_inputs(len(present))
    for slot, value in enumerate(present):
        node.replace_input_with(slot, value)
    node.op_type = function.name
    for name in list(node.attributes):
        del node.attributes[name]
