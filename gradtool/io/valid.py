"""What is about to be written must be a valid model: for ONNX's checker, and for onnxruntime.

Weights are left out of what is checked: they count as inputs.  So do scales of Resize such as 0.7,
by which ONNX's checker makes 6 of 10 and every runtime 7.  A file that is refused for what its
source is refused for as well has no defect of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Self

import numpy as np
import onnx

from gradtool.errors import InvalidResult, ModelError
from gradtool.io import read, walk
from gradtool.io.stock import Answer, Session, is_installed
from gradtool.resize_rules import fraction

# Bytes. Shorter tensors may hold sizes, which shapes are inferred from.
LARGEST_KEPT = 4096
# Nodes. Loading a longer graph takes onnxruntime longer than building it took.
MOST_LOADED = 5_000
# Seconds, a fixed part and one for each node.
TIME, TIME_PER_NODE = 20.0, 1e-3

Say = Callable[[str], object]


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

    def check(self, proto: onnx.ModelProto) -> None:
        """Check a message, whose weights are lost by it.

        Raises:
            InvalidResult: naming the node.
        """
        leave_out_weights(proto)
        leave_out_scales(proto)
        reason = _refusal(proto)
        if reason and not self._source_is(_is_refused):
            raise InvalidResult("ONNX's checker", reason)
        if reason:
            self.say(f"ONNX's checker refuses the source as it does the result: {reason}")
        elif self._session is not None and len(proto.graph.node) <= MOST_LOADED:
            self._ask(self._session, proto)

    def _ask(self, session: Session, proto: onnx.ModelProto) -> None:
        answer = session.ask(proto.SerializeToString(), _patience(proto))
        if answer is None or answer.loads:
            return
        plainly = _plainly(proto)
        if plainly is None or plainly.loads:
            reason = _one_line(answer.reason)
            self.say(f"stock onnxruntime loads it with ORT_DISABLE_ALL only; else: {reason}")
            return
        reason = _one_line(plainly.reason)
        if not self._source_is(_is_refused_plainly):
            raise InvalidResult("onnxruntime", reason)
        self.say(f"stock onnxruntime refuses the source as it does the result: {reason}")

    def _source_is(self, refused: Callable[[onnx.ModelProto], bool]) -> bool:
        if self.source is None:
            return False
        try:
            proto = read.from_file(self.source)
        except ModelError:
            return False
        leave_out_weights(proto)
        leave_out_scales(proto)
        return refused(proto)


def _refusal(proto: onnx.ModelProto) -> str | None:
    """Why ONNX's full check refuses a model."""
    try:
        onnx.checker.check_model(proto.SerializeToString(), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return _one_line(str(error))
    return None


def _is_refused(proto: onnx.ModelProto) -> bool:
    return _refusal(proto) is not None


def _plainly(proto: onnx.ModelProto) -> Answer | None:
    session = Session("ORT_DISABLE_ALL")
    try:
        return session.ask(proto.SerializeToString(), _patience(proto))
    finally:
        session.close()


def _is_refused_plainly(proto: onnx.ModelProto) -> bool:
    answer = _plainly(proto)
    return answer is not None and not answer.loads


def _patience(proto: onnx.ModelProto) -> float:
    return TIME + TIME_PER_NODE * len(proto.graph.node)


def leave_out_weights(proto: onnx.ModelProto) -> None:
    """Make inputs of all large tensors, those of subgraphs included, and of those elsewhere."""
    top = proto.graph
    given = {value.name for value in top.input}
    for graph in list(walk.graphs(top)):
        heavy = [tensor for tensor in graph.initializer if _is_heavy(tensor)]
        if not heavy:
            continue
        kept = [tensor for tensor in graph.initializer if not _is_heavy(tensor)]
        made = [
            onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims)
            for t in heavy
            if t.name not in given
        ]
        del graph.initializer[:]
        graph.initializer.extend(kept)
        top.input.extend(made)


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
