"""Mutations of models, field by field, drawn from a seed.

They know what the fields of a model mean, so that most mutants get past the first checks: a size is
replaced by another size, a name by a name of the same graph, an attribute by a value of its type or
by one that the operator's schema has. One in a few is blind: any field of any message.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, defs, numpy_helper

INTEGERS = (0, 1, 2, 3, 4, 5, 7, 8, 16, 63, 64, 65, 1000, 4097, 2**16, 2**20, 2**24, 2**28,
            2**30, 2**31 - 1, 2**31, 2**32, 2**40, 2**53, 2**62, 2**63 - 1)  # fmt: skip
NUMBERS = tuple(sorted({*INTEGERS, *(-n for n in INTEGERS), -(2**63)}))
SMALL = tuple(range(-3, 9))
REALS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-45, 1e38, -1e38, float("inf"), float("nan"))
TEXTS = ("", "x", "NOTSET", "SAME_UPPER", "VALID", "linear", "cubic", "nearest", "reflect", "edge",
         "constant", "wrap", "sum", "mean", "none", "forward", "reverse", "bidirectional", "tanh",
         "Relu", "ij,jk->ik", "...i->...", "ii->i", "i,i->", "\x00", "é\n", "9**9**9")  # fmt: skip
_DATA_MOST = 2**16  # elements of a tensor that is given another shape together with its data
Draw = random.Random


def mutant(model: onnx.ModelProto, draw: Draw) -> onnx.ModelProto:
    """A copy of the model with one or more mutations."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for _ in range(1 + min(int(draw.expovariate(1.0)), 5)):
        mutate = draw.choices(list(MUTATIONS), list(MUTATIONS.values()))[0]
        mutate(copy, draw)
    return copy


def graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """The graph and those in its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs(attribute.g)


def _graph(model: onnx.ModelProto, draw: Draw) -> GraphProto:
    return draw.choice(list(graphs(model.graph)))


def _node(model: onnx.ModelProto, draw: Draw) -> NodeProto | None:
    found = [node for graph in graphs(model.graph) for node in graph.node]
    return draw.choice(found) if found else None


def _number(draw: Draw) -> int:
    return draw.choice(SMALL if draw.random() < 0.6 else NUMBERS)


# ----------------------------------------------------------------------- types and shapes


def _size(model: onnx.ModelProto, draw: Draw) -> None:
    graph = _graph(model, draw)
    values = [*graph.input, *graph.output, *graph.value_info]
    if not values:
        return
    value = draw.choice(values)
    dims = value.type.tensor_type.shape.dim
    choice = draw.random()
    if not dims or choice < 0.1:
        dims.add().dim_value = _number(draw)
    elif choice < 0.2:
        del dims[draw.randrange(len(dims))]
    elif choice < 0.3:
        draw.choice(dims).dim_param = draw.choice(("n", "m", "2*n", "n//0", "-n", "n**9**9", "?"))
    elif choice < 0.35:
        draw.choice(dims).ClearField("value")
    elif choice < 0.4:
        value.type.tensor_type.ClearField("shape")
    else:
        draw.choice(dims).dim_value = _number(draw)


def _element_type(model: onnx.ModelProto, draw: Draw) -> None:
    graph = _graph(model, draw)
    values = [*graph.input, *graph.output, *graph.value_info]
    if values:
        value = draw.choice(values)
        kind = draw.choice((1, 1, 6, 7, 9, 8, 10, 11, 14, 16, 17, 22, 0, 99))
        if draw.random() < 0.2:
            made = onnx.helper.make_tensor_type_proto(kind, draw.choice(([], [4], None)))
            wrap = draw.choice((onnx.helper.make_sequence_type_proto,
                                onnx.helper.make_optional_type_proto))  # fmt: skip
            value.type.CopyFrom(wrap(made))
        else:
            value.type.tensor_type.elem_type = kind


# ------------------------------------------------------------------------------- tensors


def _tensors(model: onnx.ModelProto) -> list[TensorProto]:
    found = []
    for graph in graphs(model.graph):
        found += graph.initializer
        found += [a.t for node in graph.node for a in node.attribute if a.HasField("t")]
    return found


def _integers(model: onnx.ModelProto, draw: Draw) -> None:
    """Another number in a tensor of integers, which may be a shape, an axis, an index."""
    found = [t for t in _tensors(model) if t.data_type in (TensorProto.INT64, TensorProto.INT32)]
    if not found:
        return
    tensor = draw.choice(found)
    array = _array(tensor)
    if array is None or not array.size:
        return
    flat = array.ravel().copy()
    limit = np.iinfo(flat.dtype)
    number = min(max(_number(draw), limit.min), limit.max)
    choice = draw.random()
    if choice < 0.15:
        flat = np.append(flat, flat.dtype.type(number))
    elif choice < 0.25:
        flat = np.delete(flat, draw.randrange(len(flat)))
    else:
        flat[draw.randrange(len(flat))] = number
    shape = array.shape if flat.size == array.size else flat.shape
    tensor.CopyFrom(numpy_helper.from_array(flat.reshape(shape), tensor.name))


def _array(tensor: TensorProto) -> np.ndarray | None:
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, MemoryError):
        return None


def _tensor_shape(model: onnx.ModelProto, draw: Draw) -> None:
    """Another shape of a tensor; mostly with data to match."""
    found = _tensors(model)
    if not found:
        return
    tensor = draw.choice(found)
    dims = list(tensor.dims)
    if dims and draw.random() < 0.7:
        dims[draw.randrange(len(dims))] = abs(draw.choice(SMALL))
    elif dims and draw.random() < 0.5:
        del dims[draw.randrange(len(dims))]
    else:
        dims.insert(draw.randrange(len(dims) + 1), draw.choice((0, 1, 2, _number(draw))))
    array = _array(tensor)
    count = int(np.prod([max(d, 0) for d in dims], dtype=object)) if dims else 1
    fits = array is not None and count <= _DATA_MOST and min(dims, default=0) >= 0
    if array is not None and fits and draw.random() < 0.9:
        data = np.resize(array, dims) if array.size else np.zeros(dims, array.dtype)
        tensor.CopyFrom(numpy_helper.from_array(data.astype(array.dtype), tensor.name))
        return
    del tensor.dims[:]
    tensor.dims.extend(dims)


def _tensor_type(model: onnx.ModelProto, draw: Draw) -> None:
    found = _tensors(model)
    if not found:
        return
    tensor = draw.choice(found)
    array = _array(tensor)
    kinds = (np.float64, np.float16, np.int32, np.int64, np.bool_, np.uint8, np.complex64)
    if array is None or array.dtype.kind not in "fiub" or draw.random() < 0.1:
        tensor.data_type = draw.choice((0, 1, 7, 8, 16, 22, 99))
        return
    with np.errstate(all="ignore"):
        tensor.CopyFrom(numpy_helper.from_array(array.astype(draw.choice(kinds)), tensor.name))


def _tensor_reals(model: onnx.ModelProto, draw: Draw) -> None:
    found = [t for t in _tensors(model) if t.data_type == TensorProto.FLOAT]
    if not found:
        return
    tensor = draw.choice(found)
    array = _array(tensor)
    if array is not None and array.size:
        array = array.copy()
        array.ravel()[draw.randrange(array.size)] = draw.choice(REALS)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _lost_tensor(model: onnx.ModelProto, draw: Draw) -> None:
    """An initializer that becomes an input, or both, or nothing."""
    graph = _graph(model, draw)
    if not graph.initializer:
        return
    index = draw.randrange(len(graph.initializer))
    tensor = graph.initializer[index]
    if draw.random() < 0.8:
        dims = list(tensor.dims) if draw.random() < 0.8 else [_number(draw)]
        value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, dims)
        graph.input.append(value)
    if draw.random() < 0.8:
        del graph.initializer[index]


# ---------------------------------------------------------------------- nodes and their names


def _names(graph: GraphProto) -> list[str]:
    found = [v.name for v in graph.input] + [t.name for t in graph.initializer]
    return found + [name for node in graph.node for name in node.output if name]


def _rewire(model: onnx.ModelProto, draw: Draw) -> None:
    """An input of a node reads another value."""
    graph = _graph(model, draw)
    if not graph.node:
        return
    index = draw.randrange(len(graph.node))
    node = graph.node[index]
    before = [v.name for v in graph.input] + [t.name for t in graph.initializer]
    before += [n for other in graph.node[:index] for n in other.output if n]
    pool = before if draw.random() < 0.9 else _names(model.graph)
    name = draw.choice(pool) if pool and draw.random() < 0.9 else ""
    choice = draw.random()
    if not node.input or choice < 0.1:
        node.input.append(name)
    elif choice < 0.2:
        del node.input[draw.randrange(len(node.input))]
    else:
        node.input[draw.randrange(len(node.input))] = name


def _outputs(model: onnx.ModelProto, draw: Draw) -> None:
    node = _node(model, draw)
    if node is None:
        return
    choice = draw.random()
    if choice < 0.5 or not node.output:
        node.output.append(draw.choice(("", "extra", node.name, "x")))
    elif choice < 0.8:
        node.output[draw.randrange(len(node.output))] = ""
    else:
        del node.output[draw.randrange(len(node.output))]


def _order(model: onnx.ModelProto, draw: Draw) -> None:
    """Nodes swapped, dropped, or copied under new names."""
    graph = _graph(model, draw)
    if not graph.node:
        return
    first, second = (draw.randrange(len(graph.node)) for _ in range(2))
    choice = draw.random()
    if choice < 0.3:
        kept = NodeProto()
        kept.CopyFrom(graph.node[first])
        graph.node[first].CopyFrom(graph.node[second])
        graph.node[second].CopyFrom(kept)
    elif choice < 0.6:
        del graph.node[first]
    else:
        nodes = list(graph.node)
        made = NodeProto()
        made.CopyFrom(nodes[first])
        for slot, name in enumerate(made.output):
            made.output[slot] = f"{name}_again" if name else ""
        if made.output and draw.random() < 0.7:  # the copy reads what the node wrote
            for slot, name in enumerate(nodes[first].output[:1]):
                if made.input:
                    made.input[slot] = name
        nodes.insert(first + 1, made)
        del graph.node[:]
        graph.node.extend(nodes)


def _operator(model: onnx.ModelProto, draw: Draw) -> None:
    """Another operator: of the same model, or any that ONNX has."""
    node = _node(model, draw)
    if node is None:
        return
    if draw.random() < 0.4:
        other = _node(model, draw)
        assert other is not None
        node.op_type, node.domain = other.op_type, other.domain
        return
    node.op_type = draw.choice(_OPERATORS)
    if draw.random() < 0.6:
        del node.attribute[:]


_OPERATORS = sorted({s.name for s in defs.get_all_schemas() if not s.domain and not s.deprecated})


def _return(model: onnx.ModelProto, draw: Draw) -> None:
    """Another value of the graph is an output."""
    graph = _graph(model, draw)
    names = _names(graph)
    if not names or not graph.output:
        return
    name = draw.choice(names)
    choice = draw.random()
    if choice < 0.4:
        graph.output[draw.randrange(len(graph.output))].name = name
    elif choice < 0.8:
        graph.output.add().name = name
    else:
        del graph.output[draw.randrange(len(graph.output))]


def _formal(model: onnx.ModelProto, draw: Draw) -> None:
    """An input of a graph less, more, or under another name."""
    graph = _graph(model, draw)
    choice = draw.random()
    if not graph.input or choice < 0.3:
        graph.input.append(onnx.helper.make_tensor_value_info("more", 1, [2]))
    elif choice < 0.6:
        del graph.input[draw.randrange(len(graph.input))]
    else:
        draw.choice(graph.input).name = draw.choice([*_names(graph), "", "\x00", "a" * 300])


def _nest(model: onnx.ModelProto, draw: Draw) -> None:
    """A graph inside a node becomes that of another node, or a node gets another's graph."""
    found = [a for g in graphs(model.graph) for n in g.node for a in n.attribute if a.HasField("g")]
    if len(found) > 1:
        first, second = draw.sample(found, 2)
        kept = GraphProto()
        kept.CopyFrom(second.g)
        if draw.random() < 0.5:
            first.g.CopyFrom(kept)


def _opset(model: onnx.ModelProto, draw: Draw) -> None:
    if model.opset_import and draw.random() < 0.8:
        draw.choice(model.opset_import).version = draw.choice((*range(1, 28), 0, -1, 2**31))
    elif draw.random() < 0.5:
        model.ir_version = draw.choice((0, 1, 3, 4, 7, 10, 13, 99, 2**31))
    else:
        entry = model.opset_import.add()
        entry.domain, entry.version = draw.choice(("", "ai.onnx.ml", "com.microsoft", "x")), 1


# ------------------------------------------------------------------------------ attributes


def _attribute(model: onnx.ModelProto, draw: Draw) -> None:
    """A value of an attribute, or an attribute that the operator may have."""
    node = _node(model, draw)
    if node is None:
        return
    if node.attribute and draw.random() < 0.6:
        _change(draw.choice(node.attribute), draw)
    elif node.attribute and draw.random() < 0.3:
        del node.attribute[draw.randrange(len(node.attribute))]
    else:
        _add(node, draw)


def _change(attribute: AttributeProto, draw: Draw) -> None:
    if attribute.type == AttributeProto.INT:
        attribute.i = _number(draw)
    elif attribute.type == AttributeProto.INTS:
        choice = draw.random()
        if not attribute.ints or choice < 0.2:
            attribute.ints.append(_number(draw))
        elif choice < 0.35:
            del attribute.ints[draw.randrange(len(attribute.ints))]
        else:
            attribute.ints[draw.randrange(len(attribute.ints))] = _number(draw)
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = draw.choice(REALS)
    elif attribute.type == AttributeProto.STRING:
        attribute.s = draw.choice(TEXTS).encode()
    else:
        attribute.type = draw.choice((1, 2, 3, 4, 5, 6, 7, 8))


def _add(node: NodeProto, draw: Draw) -> None:
    try:
        schema = defs.get_schema(node.op_type, node.domain)
    except defs.SchemaError:
        return
    if not schema.attributes:
        return
    name = draw.choice(sorted(schema.attributes))
    if any(attribute.name == name for attribute in node.attribute):
        return
    kind = int(schema.attributes[name].type.value)
    made = node.attribute.add()
    made.name, made.type = name, kind
    if kind == AttributeProto.INTS:
        made.ints.extend(_number(draw) for _ in range(draw.randrange(5)))
    elif kind == AttributeProto.FLOATS:
        made.floats.extend(draw.choice(REALS) for _ in range(draw.randrange(5)))
    elif kind == AttributeProto.STRINGS:
        made.strings.extend(draw.choice(TEXTS).encode() for _ in range(draw.randrange(3)))
    else:
        _change(made, draw)


# ------------------------------------------------------------------------------------ blind


def _messages(message: Any) -> Iterator[Any]:
    yield message
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for each in value if field.is_repeated else (value,):
                yield from _messages(each)


def _blind(model: onnx.ModelProto, draw: Draw) -> None:
    """Any field of any message: cleared, doubled, cut, or set to something of its type."""
    message = draw.choice(list(_messages(model)))
    field = draw.choice(message.DESCRIPTOR.fields)
    if field.is_repeated:
        _blind_list(getattr(message, field.name), field, draw)
    elif draw.random() < 0.3:
        message.ClearField(field.name)
    elif field.type != FieldDescriptor.TYPE_MESSAGE:
        _set(message, field, draw)
    else:
        getattr(message, field.name).SetInParent()


def _blind_list(values: Any, field: Any, draw: Draw) -> None:
    if len(values) and draw.random() < 0.5:
        del values[draw.randrange(len(values))]
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        values.add()
        if len(values) > 1:
            values[-1].CopyFrom(values[draw.randrange(len(values) - 1)])
    else:
        value = _of_type(field, draw)
        if value is not None:
            values.append(value)


def _set(message: Any, field: Any, draw: Draw) -> None:
    value = _of_type(field, draw)
    if value is not None:
        setattr(message, field.name, value)


def _of_type(field: Any, draw: Draw) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_INT64:
            return _number(draw)
        case FieldDescriptor.CPPTYPE_INT32:
            return draw.choice((0, 1, 2, 7, 16, -1, 2**31 - 1))
        case FieldDescriptor.CPPTYPE_UINT64:
            return abs(_number(draw))
        case FieldDescriptor.CPPTYPE_FLOAT | FieldDescriptor.CPPTYPE_DOUBLE:
            return draw.choice(REALS)
        case FieldDescriptor.CPPTYPE_ENUM:
            return draw.choice(field.enum_type.values).number
        case FieldDescriptor.CPPTYPE_STRING:
            text = draw.choice(TEXTS)
            return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
    return None


MUTATIONS: dict[Callable[[onnx.ModelProto, Draw], None], int] = {
    _attribute: 5,
    _blind: 2,
    _element_type: 1,
    _formal: 1,
    _integers: 4,
    _lost_tensor: 2,
    _nest: 1,
    _operator: 3,
    _opset: 1,
    _order: 2,
    _outputs: 1,
    _return: 1,
    _rewire: 3,
    _size: 4,
    _tensor_reals: 1,
    _tensor_shape: 3,
    _tensor_type: 1,
}
