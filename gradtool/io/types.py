"""Element types of operands, against the types of the operators' schemas."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import onnx_ir as ir
from onnx import defs

from gradtool.errors import ModelError
from gradtool.graph import walk
from gradtool.graph.names import label


def check(model: ir.Model) -> None:
    """Check every node whose operator ONNX defines. Types must have been inferred.

    Raises:
        ModelError: naming the node and the input.
    """
    imports = model.graph.opset_imports
    for node in walk.nodes(model.graph):
        parameters = _parameters(node.op_type, node.domain, imports.get(node.domain, 0))
        if parameters:
            _check_node(node, parameters)


@dataclass(frozen=True)
class _Parameter:
    """An input of a schema: the type variable it belongs to, and the types that it takes."""

    variable: str
    types: frozenset[str]
    homogeneous: bool


@functools.cache
def _parameters(name: str, domain: str, version: int) -> tuple[_Parameter, ...]:
    """The inputs of an operator; a variadic one is the last. Empty where there is no schema."""
    try:
        schema = defs.get_schema(name, version, domain)
    except defs.SchemaError:
        return ()
    return tuple(
        _Parameter(i.type_str, frozenset(i.types), i.is_homogeneous) for i in schema.inputs
    )


def _check_node(node: ir.Node, parameters: tuple[_Parameter, ...]) -> None:
    bound: dict[str, str] = {}
    for index, value in enumerate(node.inputs):
        kind = _type_name(value)
        if kind is None:
            continue
        parameter = parameters[min(index, len(parameters) - 1)]
        who = label(node)
        if parameter.types and kind not in parameter.types:
            raise ModelError(f"{who}: input {index} is a {kind}, which it does not take")
        if not parameter.homogeneous:
            continue
        if bound.setdefault(parameter.variable, kind) != kind:
            raise ModelError(
                f"{who}: input {index} is a {kind}, another one a {bound[parameter.variable]}"
            )


def _type_name(value: ir.Value | None) -> str | None:
    """The schemas' name of a tensor's type; None if it is none or unknown."""
    if value is None or not isinstance(value.type, ir.TensorType):
        return None
    return f"tensor({value.type.dtype.name.lower()})"
