"""Operators that ONNX defines by other operators, replaced by their definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import onnx_ir as ir
from onnx import defs

from gradtool.errors import ModelError
from gradtool.graph import walk
from gradtool.shapes import infer

DOMAIN = "ai.gradtool.definitions"

Keep = Callable[[str, str, int], bool]


def expand_definitions(model: ir.Model, keep: Keep) -> bool:
    """Replace operators refused by `keep(domain, name, version)` and defined by ONNX.

    Definitions may depend on the types of the inputs, so types are inferred first. Returns
    whether there were any.
    """
    found = False
    known: dict[tuple[str, str], bool] = {}
    while nodes := [n for n in walk.nodes(model.graph) if _is_defined(model, n, keep, known)]:
        infer(model)
        functions = {n: f for n in nodes if (f := _definition(model, n)) is not None}
        if not functions:
            break
        found = True
        for number, (node, function) in enumerate(functions.items()):
            function.domain, function.name = DOMAIN, f"{node.op_type}_{number}"
            body = ir.serde.deserialize_function(function)
            model.functions[body.identifier()] = body
            model.graph.opset_imports[DOMAIN] = 1
            node.domain, node.op_type = DOMAIN, body.name
        from gradtool.io.functions import inline_functions

        inline_functions(model, lambda domain, name: domain != DOMAIN)  # noqa: ARG005
        del model.graph.opset_imports[DOMAIN]
    return found


def _is_defined(
    model: ir.Model, node: ir.Node, keep: Keep, known: dict[tuple[str, str], bool]
) -> bool:
    operator = node.domain, node.op_type
    if operator not in known:
        schema = _schema(model, node)
        known[operator] = schema is not None and not keep(*operator, _version(model, node))
    return known[operator]


def _version(model: ir.Model, node: ir.Node) -> int:
    return model.graph.opset_imports.get(node.domain, 1)


def _schema(model: ir.Model, node: ir.Node) -> Any:
    """The schema of an operator with a definition."""
    try:
        schema: Any = defs.get_schema(node.op_type, _version(model, node), node.domain)
    except defs.SchemaError:
        return None
    return schema if schema.has_function or schema.has_context_dependent_function else None


def _definition(model: ir.Model, node: ir.Node) -> onnx.FunctionProto | None:
    """The body of a node; None where it needs the type of an input that isn't known yet."""
    schema = _schema(model, node)
    if schema is None:
        return None
    version = _version(model, node)
    newest = [v for v in schema.function_opset_versions if v <= version]
    if schema.has_function:
        body = schema.get_function_with_opset_version(max(newest, default=-1))
    else:
        if any(v is not None and v.type is None for v in node.inputs):
            return None
        types = [_type(value) for value in node.inputs]
        proto = ir.serde.serialize_node(node)
        offered = schema.context_dependent_function_opset_versions
        fit = [v for v in offered if v <= version]
        try:
            body = schema.get_context_dependent_function_with_opset_version(
                max(fit, default=-1), proto.SerializeToString(), types
            )
        except Exception as error:
            raise ModelError(f"{node.op_type} {node.name!r} has no definition: {error}") from error
    function = onnx.FunctionProto()
    function.ParseFromString(body)
    for entry in function.opset_import:  # where an operator got another meaning, so did this one
        entry.version = model.graph.opset_imports.get(entry.domain, entry.version)
    return function


def _type(value: ir.Value | None) -> bytes:
    proto = onnx.TypeProto()
    if value is not None and value.type is not None:
        proto = ir.serde.serialize_value(value).type
    content: bytes = proto.SerializeToString()
    return content
