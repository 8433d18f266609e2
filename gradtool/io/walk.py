"""Everything inside a model proto, found without recursion surprises: graphs, nodes, tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

STANDARD = ("", "ai.onnx")


def domain_of(node: onnx.NodeProto | onnx.FunctionProto) -> str:
    """The domain, with the two spellings of the standard one made equal."""
    return "" if node.domain in STANDARD else node.domain


def shown(text: str | bytes) -> str:
    """A text for one line of a message; protobuf gives bytes instead of invalid UTF-8."""
    return text if isinstance(text, str) and text.isprintable() else repr(text)


def label(node: onnx.NodeProto) -> str:
    """The name of a node in messages: its operator and its name, or its first output."""
    op = shown(node.op_type)
    if node.name:
        return f"{op} node {node.name!r}"
    output = next((name for name in node.output if name), "")
    return f"{op} node that writes {output!r}"


def attribute_graphs(attribute: onnx.AttributeProto) -> Iterator[onnx.GraphProto]:
    """The graphs of an attribute."""
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs in attributes of the node itself."""
    for attribute in node.attribute:
        yield from attribute_graphs(attribute)


def graphs(top: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """`top` and every graph nested in it, outer ones first."""
    yield top
    for node in top.node:
        if node.attribute:
            for inner in subgraphs(node):
                yield from graphs(inner)


def nodes(body: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes of a body and of every graph nested in it."""
    for node in body:
        yield node
        if node.attribute:
            for inner in subgraphs(node):
                yield from nodes(inner.node)


def bodies(model: onnx.ModelProto) -> Iterator[Iterable[onnx.NodeProto]]:
    """The node lists of the graph, of the local functions and of the training graphs."""
    yield model.graph.node
    for function in model.functions:
        yield function.node
    for training in model.training_info:
        yield training.initialization.node
        yield training.algorithm.node


def all_graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """Every graph of the model: nested ones and those of functions and training included."""
    yield from graphs(model.graph)
    for function in model.functions:
        for node in function.node:
            for inner in subgraphs(node):
                yield from graphs(inner)
    for training in model.training_info:
        yield from graphs(training.initialization)
        yield from graphs(training.algorithm)


def tensors(model: onnx.ModelProto) -> Iterator[tuple[onnx.TensorProto, str]]:
    """Every dense tensor of the model, with its place for a message."""
    for graph in all_graphs(model):
        for tensor in graph.initializer:
            yield tensor, f"tensor {tensor.name!r}"
    for body in bodies(model):
        for node in nodes(body):
            for attribute, tensor in _attribute_tensors(node.attribute) if node.attribute else ():
                yield tensor, f"attribute {attribute.name!r} of {label(node)}"
    for function in model.functions:
        for attribute, tensor in _attribute_tensors(function.attribute_proto):
            yield tensor, f"attribute {attribute.name!r} of function {function.name!r}"


def _attribute_tensors(
    attributes: Iterable[onnx.AttributeProto],
) -> Iterator[tuple[onnx.AttributeProto, onnx.TensorProto]]:
    for attribute in attributes:
        if attribute.HasField("t"):
            yield attribute, attribute.t
        for tensor in attribute.tensors:
            yield attribute, tensor


def sparse_constants(model: onnx.ModelProto) -> Iterator[tuple[onnx.SparseTensorProto, str]]:
    """Every sparse value of a Constant node, with its place for a message."""
    for body in bodies(model):
        for node in nodes(body):
            for attribute in node.attribute:
                if attribute.HasField("sparse_tensor"):
                    yield attribute.sparse_tensor, label(node)


def shapes(model: onnx.ModelProto, *, inputs: bool = True) -> Iterator[onnx.TensorShapeProto]:
    """Every declared shape, without `inputs` those of results of nodes."""
    for graph in all_graphs(model):
        given = graph.input if inputs else ()
        for value in (*given, *graph.output, *graph.value_info):
            yield from type_shapes(value.type)
    for function in model.functions:
        for value in function.value_info:
            yield from type_shapes(value.type)


def type_shapes(kind: onnx.TypeProto) -> Iterator[onnx.TensorShapeProto]:
    """The shapes in a type, of which a map has none."""
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        yield getattr(kind, which).shape
    elif which in ("sequence_type", "optional_type"):
        yield from type_shapes(getattr(kind, which).elem_type)
