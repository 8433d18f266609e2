"""Checks of each node against the schema of its operator: arity and attributes.

A node whose operator has no schema here (another vendor's domain) is let through: that it has
no gradient or kernel is for others to say.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import onnx
from onnx import defs

from gradtool.errors import ModelError
from gradtool.io import walk

_A = onnx.AttributeProto
_FIELD = {
    _A.FLOAT: "f",
    _A.INT: "i",
    _A.STRING: "s",
    _A.TENSOR: "t",
    _A.GRAPH: "g",
    _A.SPARSE_TENSOR: "sparse_tensor",
    _A.TYPE_PROTO: "tp",
    _A.FLOATS: "floats",
    _A.INTS: "ints",
    _A.STRINGS: "strings",
    _A.TENSORS: "tensors",
    _A.GRAPHS: "graphs",
    _A.SPARSE_TENSORS: "sparse_tensors",
    _A.TYPE_PROTOS: "type_protos",
}
_NOT_VALUES = frozenset({"name", "type", "doc_string", "ref_attr_name"})
# Deprecated in some opsets; `adapters` writes them in a later form.
_RENEWED = frozenset({"GroupNormalization"})
# onnxruntime's, in the standard domain.
_OF_A_VENDOR = frozenset({("", "SimplifiedLayerNormalization")})
_DOMAINS_WITH_SCHEMAS = frozenset({"", "ai.onnx.ml", "ai.onnx.preview.training"})

Functions = Mapping[tuple[str, str, str], onnx.FunctionProto]


def is_standard(domain: str, name: str) -> bool:
    """Whether ONNX itself defines an operator of the name."""
    return domain in _DOMAINS_WITH_SCHEMAS and _newest(domain, name) is not None


def check(model: onnx.ModelProto) -> None:
    """Check every node of the graph and of the local functions.

    Raises:
        ModelError: naming the node and the rule of its schema.
    """
    functions = {(walk.domain_of(f), f.name, f.overload): f for f in model.functions}
    imports = _versions(model.opset_import)
    _check_nodes(model.graph.node, imports, functions, in_function=False)
    for function in model.functions:
        imports = _versions(function.opset_import)
        _check_nodes(function.node, imports, functions, in_function=True)


def _versions(imports: Sequence[onnx.OperatorSetIdProto]) -> dict[str, int]:
    return {("" if e.domain in walk.STANDARD else e.domain): e.version for e in imports}


def _check_nodes(
    nodes: Iterable[onnx.NodeProto],
    imports: Mapping[str, int],
    functions: Functions,
    *,
    in_function: bool,
) -> None:
    for node in walk.nodes(nodes):
        if not all(isinstance(text, str) for text in (node.name, node.op_type, node.domain)):
            raise ModelError("a node has a name, an operator or a domain that is not UTF-8")
        try:
            _check_node(node, imports, functions, in_function=in_function)
        except ModelError as error:
            raise ModelError(f"{walk.label(node)}: {error}") from None


def _check_node(
    node: onnx.NodeProto, imports: Mapping[str, int], functions: Functions, *, in_function: bool
) -> None:
    domain = walk.domain_of(node)
    if not any(node.output) and not any(node.input):
        raise ModelError("has neither inputs nor outputs")
    _check_attributes(node, in_function=in_function)
    function = functions.get((domain, node.op_type, node.overload))
    if function is not None:
        _check_call(node, function)
        return
    if domain not in imports:
        raise ModelError(f"its domain {domain or 'ai.onnx'!r} is not imported")
    if domain in _DOMAINS_WITH_SCHEMAS:
        _check_schema(node, domain, imports[domain])


def _check_call(node: onnx.NodeProto, function: onnx.FunctionProto) -> None:
    if len(node.input) > len(function.input) or len(node.output) > len(function.output):
        raise ModelError(
            f"the local function has {len(function.input)} inputs and "
            f"{len(function.output)} outputs, the call {len(node.input)} and {len(node.output)}"
        )
    defaults = {attribute.name: attribute.type for attribute in function.attribute_proto}
    for attribute in node.attribute:
        if attribute.name in defaults and attribute.type != defaults[attribute.name]:
            raise ModelError(f"attribute {attribute.name!r} has the wrong type")
    references = {
        attribute.ref_attr_name: attribute.type
        for inner in walk.nodes(function.node)
        for attribute in inner.attribute
        if attribute.ref_attr_name
    }
    for attribute in node.attribute:
        if attribute.type != references.get(attribute.name, attribute.type):
            raise ModelError(f"attribute {attribute.name!r} has the wrong type")


def _check_attributes(node: onnx.NodeProto, *, in_function: bool) -> None:
    """Check the attributes of any operator: one value each, of its declared type."""
    seen: set[str] = set()
    is_literal = node.op_type == "Constant" and not walk.domain_of(node)
    for attribute in node.attribute:
        name = attribute.name
        if not name or name in seen:
            raise ModelError(f"attribute {name!r} is unnamed or given twice")
        seen.add(name)
        field = _FIELD.get(attribute.type)
        if field is None:
            raise ModelError(f"attribute {name!r} has no valid type ({attribute.type})")
        values = {f.name for f, _ in attribute.ListFields()} - _NOT_VALUES
        if attribute.ref_attr_name:
            if not in_function or values:
                raise ModelError(f"attribute {name!r} refers to a function's attribute here")
        elif values - {field} or (not values and field in ("t", "g", "tp", "sparse_tensor")):
            raise ModelError(f"attribute {name!r} does not hold the one value of its type")
        elif field in ("sparse_tensor", "sparse_tensors") and not is_literal:
            raise ModelError("sparse tensors are not supported")


def _check_schema(node: onnx.NodeProto, domain: str, version: int) -> None:
    schema = _schema(node.op_type, domain, version)
    if schema is None and (domain, node.op_type) in _OF_A_VENDOR:
        return
    if schema is None:
        where = f"{domain or 'ai.onnx'!r}"
        if _newest(domain, node.op_type) is None:
            raise ModelError(f"{node.op_type!r} is no operator of {where}")
        raise ModelError(f"is not in opset {version} of {where}")
    _check_arity(node, schema)
    _check_given(node, schema)
    if node.op_type == "Constant" and len(node.attribute) != 1:
        raise ModelError(f"has {len(node.attribute)} attributes, one of which is its value")


def _check_given(node: onnx.NodeProto, schema: _Schema) -> None:
    for attribute in node.attribute:
        expected = schema.attributes.get(attribute.name)
        if expected is None:
            raise ModelError(f"{node.op_type} has no attribute {attribute.name!r}")
        if expected != attribute.type:
            raise ModelError(f"attribute {attribute.name!r} has the wrong type")
        if not all(_is_text(text) for text in (attribute.s, *attribute.strings)):
            raise ModelError(f"attribute {attribute.name!r} is not UTF-8")
    for name in schema.required_attributes:
        if all(name != attribute.name for attribute in node.attribute):
            raise ModelError(f"the required attribute {name!r} is missing")


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _check_arity(node: onnx.NodeProto, schema: _Schema) -> None:
    for what, found, least, most in (
        ("inputs", len(node.input), schema.min_input, schema.max_input),
        ("outputs", len(node.output), schema.min_output, schema.max_output),
    ):
        if not least <= found <= most:
            span = str(least) if least == most else f"{least} to {most}"
            if most > 2**30:
                span = f"at least {least}"
            raise ModelError(f"has {found} {what}, {node.op_type} takes {span}")
    for required, name in zip(schema.required_inputs, node.input, strict=False):
        if required and not name:
            raise ModelError("a required input is left out")


class _Schema:
    """The relevant part of an operator schema, in plain Python: reading it natively is slow."""

    def __init__(self, schema: defs.OpSchema) -> None:
        single = defs.OpSchema.FormalParameterOption.Single
        self.min_input, self.max_input = schema.min_input, schema.max_input
        self.min_output, self.max_output = schema.min_output, schema.max_output
        self.required_inputs = [parameter.option == single for parameter in schema.inputs]
        self.attributes = {
            name: int(cast("Any", a.type).value) for name, a in schema.attributes.items()
        }
        self.required_attributes = [n for n, a in schema.attributes.items() if a.required]


@functools.cache
def _schema(name: str, domain: str, version: int) -> _Schema | None:
    try:
        schema = defs.get_schema(name, version, domain)
    except defs.SchemaError:
        return None
    return None if schema.deprecated and name not in _RENEWED else _Schema(schema)


def _newest(domain: str, name: str) -> defs.OpSchema | None:
    try:
        return defs.get_schema(name, domain)
    except defs.SchemaError:
        return None
