"""What is about to be written must be a valid model: for ONNX's checker, and for onnxruntime.

Weights are left out of what is checked: they count as inputs.  So do scales of Resize such as 0.7,
by which ONNX's checker makes 6 of 10 and every runtime 7.  What is noted on nodes is left out as
well, which nobody checks.  A file that is refused for what its source is refused for as well has no
defect of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Self

import numpy as np
import onnx

from gradtool.errors import InvalidResult, ModelError
from gradtool.io import read, walk
from gradtool.io.pieces import Message, model_pieces
from gradtool.io.stock import Answer, Session, is_installed
from gradtool.operators.resize import fraction

# Bytes. Shorter tensors may hold sizes, which shapes are inferred from.
LARGEST_KEPT = 4096
# Nodes. Loading a longer graph takes onnxruntime longer than building it took.
MOST_LOADED = 5_000
# Seconds, a fixed part and one for each node.
TIME, TIME_PER_NODE = 20.0, 1e-3

Say = Callable[[str], object]


@dataclass(frozen=True)
class _Weightless:
    """A model to check: its bytes without weights, and how many nodes it has."""

    message: bytes
    nodes: int

    @classmethod
    def of(cls, proto: onnx.ModelProto) -> Self:
        parts = Parts()
        parts.add(proto.graph)
        return cls(parts.message(proto), parts.nodes)

    @property
    def patience(self) -> float:
        """Seconds that loading it may take."""
        return TIME + TIME_PER_NODE * self.nodes


class Parts:
    """A model to check that comes in parts, of which nothing is left but what is checked."""

    def __init__(self) -> None:
        self.nodes = 0
        self._graph = Message()
        self._given: set[str] = set()
        self._resizes = False

    def add(self, part: onnx.GraphProto) -> None:
        """Append a part, the inputs of the graph before its weights; it is empty then."""
        self.nodes += len(part.node)
        self._given |= {value.name for value in part.input}
        self._given |= leave_out_weights(part, self._given)
        for node in walk.nodes(part.node):
            node.ClearField("metadata_props")
            self._resizes |= node.op_type == "Resize"
        self._graph.add(part)

    def message(self, last: onnx.ModelProto) -> bytes:
        """The bytes of the model with these parts and a last one; that is empty then."""
        found = b"".join(model_pieces(self._graph, last))
        if not self._resizes:
            return found
        proto = onnx.ModelProto.FromString(found)
        leave_out_scales(proto)
        content: bytes = proto.SerializeToString()
        return content


class Judge:
    """Checks one model that came from a file, `source`; asks onnxruntime too, with `stock`.

    `say` is told of what is no defect of ours.
    """

    def __init__(self, source: Path | None, *, stock: bool, say: Say | None) -> None:
        self.source = source
        self.say = say or (lambda _: None)
        self._session = Session() if stock and is_installed() else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._session is not None:
            self._session.close()

    def check(self, parts: Parts, last: onnx.ModelProto) -> None:
        """Check a model that is in parts.

        Raises:
            InvalidResult: naming the node.
        """
        graph = _Weightless(parts.message(last), parts.nodes)
        reason = _refusal(graph)
        if reason and not self._source_is(_is_refused):
            raise InvalidResult("ONNX's checker", reason)
        if reason:
            self.say(f"ONNX's checker refuses the source as it does the result: {reason}")
        elif self._session is not None and graph.nodes <= MOST_LOADED:
            self._ask(self._session, graph)

    def _ask(self, session: Session, graph: _Weightless) -> None:
        answer = session.ask(graph.message, graph.patience)
        if answer is None or answer.loads:
            return
        plainly = _plainly(graph)
        if plainly is None or plainly.loads:
            reason = _one_line(answer.reason)
            self.say(f"stock onnxruntime loads it with ORT_DISABLE_ALL only; else: {reason}")
            return
        reason = _one_line(plainly.reason)
        if not self._source_is(_is_refused_plainly):
            raise InvalidResult("onnxruntime", reason)
        self.say(f"stock onnxruntime refuses the source as it does the result: {reason}")

    def _source_is(self, refused: Callable[[_Weightless], bool]) -> bool:
        if self.source is None:
            return False
        try:
            proto = read.from_file(self.source)
        except ModelError:
            return False
        return refused(_Weightless.of(proto))


def _refusal(graph: _Weightless) -> str | None:
    """Why ONNX's full check refuses a model, or what it fails with: any exception of C++."""
    try:
        onnx.checker.check_model(graph.message, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return _one_line(str(error))
    except (ArithmeticError, IndexError, RuntimeError, ValueError) as error:
        return f"it fails with {type(error).__name__}: {_one_line(str(error))}"
    return None


def _is_refused(graph: _Weightless) -> bool:
    return _refusal(graph) is not None


def _plainly(graph: _Weightless) -> Answer | None:
    session = Session("ORT_DISABLE_ALL")
    try:
        return session.ask(graph.message, graph.patience)
    finally:
        session.close()


def _is_refused_plainly(graph: _Weightless) -> bool:
    answer = _plainly(graph)
    return answer is not None and not answer.loads


def leave_out_weights(top: onnx.GraphProto, given: AbstractSet[str]) -> set[str]:
    """Make inputs of all large tensors, those of subgraphs included, and of those elsewhere.

    Returns their names; what is `given` is an input already.
    """
    made: dict[str, onnx.ValueInfoProto] = {}
    for graph in list(walk.graphs(top)):
        heavy = [tensor for tensor in graph.initializer if _is_heavy(tensor)]
        if not heavy:
            continue
        kept = [tensor for tensor in graph.initializer if not _is_heavy(tensor)]
        for t in heavy:
            made[t.name] = onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims)
        del graph.initializer[:]
        graph.initializer.extend(kept)
    top.input.extend(value for name, value in made.items() if name not in given)
    return set(made)


def leave_out_scales(proto: onnx.ModelProto) -> None:
    """Make inputs of the scales of Resize that are not what they stand for, as 0.7 in float32."""
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
    values = onnx.numpy_helper.to_array(scales).astype(np.float32).ravel()
    return any(fraction(s) != Fraction(float(s)) for s in values if np.isfinite(s))


def _is_heavy(tensor: onnx.TensorProto) -> bool:
    external = tensor.data_location == onnx.TensorProto.EXTERNAL
    return external or tensor.ByteSize() > LARGEST_KEPT


def _one_line(text: str) -> str:
    return " ".join(text.split())[:400]
