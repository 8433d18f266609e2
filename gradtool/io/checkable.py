"""A model for checking: without weights, and without notes on nodes.

A long one is checked a part at a time, each with its reads as inputs: of all at once, ONNX's
checker makes several copies.  That needs known types of everything that flows from part to part;
names are held against those of all parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from fractions import Fraction
from itertools import chain, groupby
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from gradtool.graph.reads import reads
from gradtool.graph.tensors import is_external, nbytes
from gradtool.io import walk, wire
from gradtool.io.streamed_proto import Message, around, model_pieces

# Nodes. Loading a longer graph takes onnxruntime longer than building it took.
MOST_AT_ONCE = 5_000

_NODE = onnx.GraphProto.NODE_FIELD_NUMBER
_VALUE_INFO = onnx.GraphProto.VALUE_INFO_FIELD_NUMBER
_INITIALIZER = wire.tag(onnx.GraphProto.INITIALIZER_FIELD_NUMBER)
_INPUT = wire.tag(onnx.GraphProto.INPUT_FIELD_NUMBER)
_OUTPUT = wire.tag(onnx.GraphProto.OUTPUT_FIELD_NUMBER)
# Bytes. Shorter tensors may hold sizes, which shapes are inferred from.
LARGEST_KEPT = 4096


def refusal(message: bytes) -> str | None:
    """The reason why ONNX's full check refuses a model, or fails: any exception of C++."""
    try:
        onnx.checker.check_model(message, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return _one_line(error)
    except (ArithmeticError, IndexError, RuntimeError, ValueError) as error:
        return f"it fails with {type(error).__name__}: {_one_line(error)}"
    return None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:400]


class AtOnce:
    """A model checked as a whole; `message` is the whole in the end."""

    def __init__(self) -> None:
        self.nodes = 0
        self.message = b""
        self._graph = Message()
        self._given: set[str] = set()
        self._resizes = False

    def begin(self, before: onnx.GraphProto) -> None:
        """Take a graph, of whose nodes all or none may be there; the message is empty then."""
        self.nodes += len(before.node)
        self._given |= {value.name for value in before.input}
        self._given |= leave_out_weights(before, self._given)
        for node in walk.nodes(before.node):
            node.ClearField("metadata_props")
            self._resizes |= node.op_type == "Resize"
        self._graph.add(before)

    def add(self, run: wire.Run) -> None:
        """Take the next nodes."""
        for encoded, nodes in groupby(run.plain, lambda each: isinstance(each, bytes)):
            each: list[Any] = list(nodes)
            if encoded:
                self.nodes += len(each)
                self._graph.extend(_NODE, b"".join(each))
            else:
                self.begin(onnx.GraphProto(node=each))
        self._resizes |= any(node.op_type == "Resize" for node in run.nodes)
        self._graph.extend(_VALUE_INFO, run.values)

    def end(self, last: onnx.ModelProto) -> str | None:
        """Take the empty message around all; return the reason of a refusal, if there is one."""
        self.message = b"".join(model_pieces(self._graph, last))
        if self._resizes:
            proto = onnx.ModelProto.FromString(self.message)
            leave_out_scales(proto)
            self.message = proto.SerializeToString()
        return refusal(self.message)


class InParts:
    """A long model, each part checked as a model of its own as soon as it comes."""

    def __init__(self, model: ir.Model) -> None:
        self._model = around(model, results=False)
        self._encoder = wire.Encoder(model.ir_version)
        self._defined = {v.name for v in chain(model.graph.inputs, _initializers(model))}
        self._reason: str | None = None

    def begin(self, before: onnx.GraphProto) -> None:
        """Take inputs and initializers, which are a part."""
        part = AtOnce()
        part.begin(before)
        self._check(part)
        self._model.ClearField("metadata_props")  # which one part has to tell

    def add(self, run: wire.Run) -> None:
        """Take the next nodes, which are a part."""
        made = [v for node in run.nodes for v in node.outputs if v.name]
        names = {v.name for v in made}
        twice = names & self._defined
        again = [v for v in made if v.name in twice] if twice else []
        read = dict.fromkeys(v for node in run.nodes for v in reads(node))
        before = [v for v in read if v.name in self._defined and v.name not in names]
        part = AtOnce()
        part.begin(self._around(before, again, made))
        part.add(run)
        self._check(part)
        self._defined |= names

    def _check(self, part: AtOnce) -> None:
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        self._reason = self._reason or part.end(model)

    def end(self, _last: onnx.ModelProto) -> str | None:
        """Why a part is refused, if one is."""
        return self._reason

    def _around(
        self, before: Iterable[ir.Value], again: Iterable[ir.Value], made: Iterable[ir.Value]
    ) -> onnx.GraphProto:
        """The reads of a part as inputs, and its results that are the model's as outputs.

        A name that is given a second time is an input as well, which the checker refuses.
        """
        fields = [self._encoder.value(_INPUT, v) for v in again]
        for value in before:
            tensor = value.const_value if value.is_initializer() else None
            if tensor is None or is_external(tensor) or nbytes(tensor) > LARGEST_KEPT:
                fields.append(self._encoder.value(_INPUT, value))
            else:
                message = ir.serde.serialize_tensor(tensor)
                message.name = value.name or ""
                fields.append(wire.delimited(_INITIALIZER, message.SerializeToString()))
        fields += [self._encoder.value(_OUTPUT, v) for v in made if v.is_graph_output()]
        graph: onnx.GraphProto = onnx.GraphProto.FromString(b"".join(fields))
        graph.name = "part"
        return graph


def checkable(model: ir.Model) -> AtOnce | InParts:
    """The checked form of a model: in parts if it is long and all its types are known."""
    if len(model.graph) <= MOST_AT_ONCE:
        return AtOnce()
    open_ones = (v for node in model.graph for v in node.outputs if v.type is None and v.name)
    return AtOnce() if any(True for _ in open_ones) else InParts(model)


def _initializers(model: ir.Model) -> Iterable[ir.Value]:
    return model.graph.initializers.values()


def leave_out_weights(top: onnx.GraphProto, given: AbstractSet[str]) -> set[str]:
    """Make inputs of all large tensors, of subgraphs as well, and of those elsewhere.

    Returns their names; `given` ones are inputs already.  A subgraph keeps its results: it may
    return nothing from outside.
    """
    made: dict[str, onnx.ValueInfoProto] = {}
    for graph in list(walk.graphs(top)):
        returned = set() if graph is top else {value.name for value in graph.output}
        heavy = [t for t in graph.initializer if _is_heavy(t) and t.name not in returned]
        if not heavy:
            continue
        names = {tensor.name for tensor in heavy}
        kept = [tensor for tensor in graph.initializer if tensor.name not in names]
        for t in heavy:
            made[t.name] = onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims)
        del graph.initializer[:]
        graph.initializer.extend(kept)
    top.input.extend(value for name, value in made.items() if name not in given)
    return set(made)


def leave_out_scales(proto: onnx.ModelProto) -> None:
    """Make inputs of the inexact scales of Resize, as 0.7 in float32."""
    top = proto.graph
    graphs = list(walk.graphs(top))
    nodes = [node for graph in graphs for node in graph.node if node.op_type == "Resize"]
    names = {name for node in nodes for name in node.input[2:3] if name}
    for graph in graphs if names else ():
        held = {t.name: t for t in graph.initializer} | {
            node.output[0]: a.t for node in graph.node if node.op_type == "Constant"
            for a in node.attribute if a.name == "value"
        }  # fmt: skip
        rounded = {name: t for name, t in held.items() if name in names and _is_rounded(t)}
        if not rounded:
            continue
        given = {value.name for value in top.input}
        top.input.extend(
            onnx.helper.make_tensor_value_info(name, t.data_type, t.dims)
            for name, t in rounded.items()
            if name not in given
        )
        for field in (graph.initializer, graph.node):
            kept = [item for item in field if _made_by(item) not in rounded]
            del field[:]
            field.extend(kept)


def _made_by(item: onnx.TensorProto | onnx.NodeProto) -> str:
    return item.name if isinstance(item, onnx.TensorProto) else next(iter(item.output), "")


def _is_rounded(scales: onnx.TensorProto) -> bool:
    from gradtool.operators.resize import fraction

    values = onnx.numpy_helper.to_array(scales).astype(np.float32).ravel()
    return any(fraction(s) != Fraction(float(s)) for s in values if np.isfinite(s))


def _is_heavy(tensor: onnx.TensorProto) -> bool:
    external = tensor.data_location == onnx.TensorProto.EXTERNAL
    return external or tensor.ByteSize() > LARGEST_KEPT
