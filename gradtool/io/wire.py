"""Nodes and values as protobuf, written straight from the graph.

onnx-ir builds a message of each first, which takes several times as long and as much memory.  Rare
parts are left to it: subgraphs, tensors, devices, types other than tensors.

Source: onnx.proto has the numbers of the fields, https://protobuf.dev/programming-guides/encoding
their encoding; the fields of a node are those of onnx-ir's `serialize_node_into`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from gradtool.graph import walk
from gradtool.graph.metadata import notes

_LENGTH_DELIMITED = 2
_CACHED = (ir.AttributeType.INT, ir.AttributeType.INTS, ir.AttributeType.STRING)


def varint(number: int) -> bytes:
    """A number in groups of seven bits, the lowest first."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def tag(field: int) -> bytes:
    """The prefix of a length-delimited field: a text, a message, packed numbers."""
    return varint(field << 3 | _LENGTH_DELIMITED)


_LENGTHS = [varint(n) for n in range(2048)]
# Of a node, in the order in which they are written.
_INPUT, _OUTPUT, _NAME, _OP_TYPE, _ATTRIBUTE = map(tag, range(1, 6))
_DOC, _DOMAIN, _OVERLOAD, _NOTES = map(tag, range(6, 10))
# Of a value; of an entry of metadata.
_VALUE_NAME, _VALUE_TYPE, _KEY, _ENTRY = tag(1), tag(2), tag(1), tag(2)


def delimited(before: bytes, content: bytes) -> bytes:
    """A field: its tag, its length and its content."""
    length = len(content)
    return before + (_LENGTHS[length] if length < len(_LENGTHS) else varint(length)) + content


class _Texts(dict[str, bytes]):
    """Texts with their lengths before them, as they stand behind a tag."""

    def __missing__(self, text: str) -> bytes:
        self[text] = found = delimited(b"", text.encode())
        return found


class _Entries(dict[tuple[str, str], bytes]):
    """Entries of metadata, by key and value: nodes of one source have them alike."""

    def __init__(self, texts: _Texts) -> None:
        super().__init__()
        self._texts = texts

    def __missing__(self, entry: tuple[str, str]) -> bytes:
        key, value = entry
        content = _KEY + self._texts[key] + _ENTRY + self._texts[value]
        self[entry] = found = delimited(_NOTES, content)
        return found


@dataclass(frozen=True)
class Run:
    """Consecutive nodes: as written, and without notes on them.

    A node that holds graphs is a message in `plain`, whole.  `values` are types and shapes of
    results, `annotations` how they are quantised.
    """

    nodes: Sequence[ir.Node]
    written: bytes
    plain: tuple[bytes | onnx.NodeProto, ...]
    values: bytes
    annotations: bytes


class Encoder:
    """An encoder of the nodes of a graph; repeated parts, such as shapes, are encoded once."""

    def __init__(self, ir_version: int | None) -> None:
        self._version = ir_version
        self._attributes: dict[Hashable, bytes] = {}
        self._types: dict[Hashable, bytes] = {}
        self._texts = _Texts()  # of a run: most names are read where they are written
        self._entry = _Entries(self._texts)
        # By identity, of objects held: like values share their shape.
        self._shared: dict[tuple[int, int], tuple[object, object, bytes]] = {}
        self._node = tag(onnx.GraphProto.NODE_FIELD_NUMBER)
        self._value_info = tag(onnx.GraphProto.VALUE_INFO_FIELD_NUMBER)

    def run(self, nodes: Sequence[ir.Node]) -> Run:
        """Encode nodes and their results, as fields of a graph."""
        written: list[bytes] = []
        plain: list[bytes | onnx.NodeProto] = []
        values: list[bytes] = []
        annotated: list[ir.Value] = []
        self._texts.clear()
        self._entry.clear()
        for node in nodes:
            if node.device_configurations or (node.attributes.data and walk.subgraphs(node)):
                whole = self._message(node)
                plain.append(whole)
                written.append(delimited(self._node, whole.SerializeToString(deterministic=True)))
            else:
                content, noted = self._content(node), self._entries(notes(node))
                plain.append(delimited(self._node, content))
                written.append(delimited(self._node, content + noted) if noted else plain[-1])
            for value in node.outputs:
                if value.is_graph_output():
                    continue
                if _is_described(value):
                    values.append(self.value(self._value_info, value))
                if value._metadata:  # noqa: SLF001 - `meta` makes room for what is not
                    annotated.append(value)
        return Run(
            nodes, b"".join(written), tuple(plain), b"".join(values), _annotations(annotated)
        )

    def _message(self, node: ir.Node) -> onnx.NodeProto:
        message = onnx.NodeProto()
        ir.serde.serialize_node_into(message, node, model_ir_version=self._version)
        return message

    def _content(self, node: ir.Node) -> bytes:
        """A node but for its metadata, which comes last."""
        texts = self._texts
        fields = [_INPUT + texts["" if v is None else v.name or ""] for v in node.inputs]
        fields += [_OUTPUT + texts[v.name or ""] for v in _named(node.outputs)]
        if node.name:
            fields.append(_text(_NAME, node.name))
        fields.append(_OP_TYPE + texts[node.op_type])
        if node.attributes.data:
            fields += [self._attribute(each) for each in node.attributes.data.values()]
        for field, text in (
            (_DOC, node.doc_string), (_DOMAIN, node.domain), (_OVERLOAD, node.overload)
        ):  # fmt: skip
            if text:
                fields.append(_text(field, text))
        return b"".join(fields)

    def _entries(self, noted: Mapping[str, str]) -> bytes:
        """Metadata, in the order of its keys."""
        return b"".join([self._entry[key, noted[key]] for key in sorted(noted)])

    def _attribute(self, attribute: ir.Attr) -> bytes:
        if attribute.is_ref():
            return _field(_ATTRIBUTE, ir.serde.serialize_reference_attribute(attribute))
        if attribute.type not in _CACHED or attribute.doc_string:
            return _field(_ATTRIBUTE, ir.serde.serialize_attribute(attribute))
        value = attribute.value
        key = attribute.name, attribute.type, tuple(value) if isinstance(value, list) else value
        found = self._attributes.get(key)
        if found is None:
            found = _field(_ATTRIBUTE, ir.serde.serialize_attribute(attribute))
            self._attributes[key] = found
        return found

    def value(self, before: bytes, value: ir.Value) -> bytes:
        """A value as a field of a graph: name, type, shape."""
        kind, shape = value.type, value.shape
        if type(kind) is not ir.TensorType or kind.denotation or notes(value) or value.doc_string:
            return _field(before, ir.serde.serialize_value(value))
        known = self._shared.get((id(kind), id(shape)))
        if known is None:
            known = self._shared[id(kind), id(shape)] = kind, shape, self._type(value)
        return delimited(before, _VALUE_NAME + self._texts[value.name or ""] + known[2])

    def _type(self, value: ir.Value) -> bytes:
        """The type and the shape of a tensor value, as a field of it."""
        shape = value.shape
        dims = None
        if shape is not None:
            dims = tuple([d if isinstance(d, int) else d.value for d in shape])
        told = shape is not None and any(shape.get_denotation(axis) for axis in range(len(shape)))
        found = None if told else self._types.get((value.dtype, dims))
        if found is None:
            message = ir.serde.serialize_value(value)
            found = delimited(_VALUE_TYPE, message.type.SerializeToString(deterministic=True))
            if not told:
                self._types[value.dtype, dims] = found
        return found


def _annotations(values: Sequence[ir.Value]) -> bytes:
    """The quantisation of values, as a field of a graph."""
    if not values:
        return b""
    graph = onnx.GraphProto()
    view = ir.GraphView(values, (), nodes=())
    ir.serde.serialize_graph_into(graph, view)  # type: ignore[arg-type]
    graph.ClearField("input")
    content: bytes = graph.SerializeToString(deterministic=True)
    return content


def _text(before: bytes, text: str) -> bytes:
    return delimited(before, text.encode())


def _field(before: bytes, message: onnx.AttributeProto | onnx.ValueInfoProto) -> bytes:
    return delimited(before, message.SerializeToString(deterministic=True))


def _named(outputs: Sequence[ir.Value]) -> Sequence[ir.Value]:
    """The outputs up to the last named one."""
    last = len(outputs)
    if last == 1 and outputs[0].name:
        return outputs
    while last and not outputs[last - 1].name:
        last -= 1
    return outputs[:last]


def _is_described(value: ir.Value) -> bool:
    """Whether there is anything to say of a value."""
    if not value.name:
        return False
    known = value.type is not None or value.shape is not None
    return bool(known or notes(value) or value.doc_string)
