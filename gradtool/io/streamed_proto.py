"""A model as protobuf, part by part: the message as a whole takes several times its bytes.

Messages of which one follows the other in a file are one message: single fields are those of the
last, repeated ones go on.  So the bytes of a graph are those of its parts, each field together.

Source: https://protobuf.dev/programming-guides/encoding (last one wins, message structure).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import onnx
import onnx_ir as ir

from gradtool.io import wire

NODES = 1000  # of a part
MOST_BYTES = 2**31 - 1
_NODE = onnx.GraphProto.NODE_FIELD_NUMBER
_VALUE_INFO = onnx.GraphProto.VALUE_INFO_FIELD_NUMBER
_ANNOTATION = onnx.GraphProto.QUANTIZATION_ANNOTATION_FIELD_NUMBER


class TooLarge(Exception):
    """More bytes than a protobuf can hold."""


class Message:
    """The bytes of a message, by field: those of its parts one after the other."""

    def __init__(self) -> None:
        self._fields: dict[int, list[bytes]] = {}

    def add(self, part: Any) -> None:
        """Append a part; it is empty then. Raises TooLarge if it has too many bytes."""
        rest = _bytes(part)
        for field, _ in part.ListFields():  # by number, as they are written
            part.ClearField(field.name)
            whole, rest = rest, _bytes(part)
            self._fields.setdefault(field.number, []).append(whole.removesuffix(rest))

    def extend(self, field: int, content: bytes) -> None:
        """Append encoded bytes to a field, tags included."""
        if content:
            self._fields.setdefault(field, []).append(content)

    def put(self, field: int, inner: Sequence[bytes]) -> None:
        """Let a field be a message of these bytes."""
        self._fields[field] = [wire.tag(field) + wire.varint(sum(map(len, inner))), *inner]

    def pieces(self) -> list[bytes]:
        """The bytes, in the order of fields, as they would be written at once.

        Raises:
            TooLarge: there are too many.
        """
        found = [piece for _, pieces in sorted(self._fields.items()) for piece in pieces]
        if sum(map(len, found)) > MOST_BYTES:
            raise TooLarge(f"{sum(map(len, found))} bytes")
        return found


def model_pieces(graph: Message, last: onnx.ModelProto) -> list[bytes]:
    """The bytes of a model whose graph came in parts; the last one is within the model's message.

    Raises:
        TooLarge: there are too many.
    """
    graph.add(last.graph)
    inner = graph.pieces()
    last.ClearField("graph")
    whole = Message()
    whole.add(last)
    if inner:
        whole.put(onnx.ModelProto.GRAPH_FIELD_NUMBER, inner)
    return whole.pieces()


def before_nodes(model: ir.Model) -> onnx.GraphProto:
    """A graph's message before its nodes: inputs, initializers, its own words."""
    graph = model.graph
    return _graph(
        model,
        inputs=graph.inputs,
        initializers=tuple(graph.initializers.values()),
        name=graph.name,
        doc_string=graph.doc_string,
        metadata_props=graph.metadata_props,
    )


def runs(model: ir.Model) -> Iterator[wire.Run]:
    """The nodes of a graph, a part at a time."""
    encoder = wire.Encoder(model.ir_version)
    nodes = iter(model.graph)
    for first in nodes:
        yield encoder.run([first, *islice(nodes, NODES - 1)])


def add_run(graph: Message, run: wire.Run) -> None:
    """Append nodes to the message of a graph, with the types of their results."""
    graph.extend(_NODE, run.written)
    graph.extend(_VALUE_INFO, run.values)
    graph.extend(_ANNOTATION, run.annotations)


def _graph(model: ir.Model, inputs: Sequence[ir.Value], **more: Any) -> onnx.GraphProto:
    part = onnx.GraphProto()
    view = ir.GraphView(inputs, (), nodes=(), **more)
    ir.serde.serialize_graph_into(part, view, model_ir_version=model.ir_version)  # type: ignore[arg-type]
    return part


def around(model: ir.Model, *, results: bool = True) -> onnx.ModelProto:
    """A model of whose graph there are the results only, the last part; or not these either."""
    returned = model.graph.outputs if results else ()
    outputs = ir.GraphView((), returned, nodes=(), opset_imports=model.opset_imports)
    found: onnx.ModelProto = ir.serde.serialize_model(
        ir.Model(
            outputs,  # type: ignore[arg-type]
            ir_version=model.ir_version,
            producer_name=model.producer_name,
            producer_version=model.producer_version,
            domain=model.domain,
            model_version=model.model_version,
            doc_string=model.doc_string,
            functions=tuple(model.functions.values()),
            metadata_props=model.metadata_props,
            device_configurations=model.device_configurations,
        )
    )
    return found


def _bytes(message: Any) -> bytes:
    try:
        found: bytes = message.SerializeToString(deterministic=True)
    except ValueError as error:
        raise TooLarge(str(error)) from error
    return found
