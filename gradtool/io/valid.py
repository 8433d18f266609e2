"""Validity of written models: for ONNX's checker, and for onnxruntime.

Weights are left out of the check: they count as inputs.  So do scales of Resize such as 0.7, by
which ONNX's checker makes 6 of 10 and every runtime 7.  Notes on nodes are left out as well, which
nobody checks.  A file refused for the same reason as its source has no defect of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import onnx

from gradtool.errors import InvalidResult, ModelError
from gradtool.io import read
from gradtool.io.checkable import MOST_AT_ONCE, AtOnce, InParts
from gradtool.io.read import Source
from gradtool.io.stock import Answer, Session, is_installed

# Seconds that onnxruntime may take to load a model, a fixed part and one for each node.
TIME, TIME_PER_NODE = 20.0, 1e-3

Say = Callable[[str], object]


class Judge:
    """The check of one model from a `source`; it asks onnxruntime too, with `stock`.

    It is not asked of a long one; the model has about as many `nodes`.  `say` is told of refusals
    that are no defect of ours.
    """

    def __init__(self, source: Source | None, *, nodes: int, stock: bool, say: Say | None) -> None:
        self.source = source
        self.say = say or (lambda _: None)
        asks = stock and nodes <= MOST_AT_ONCE and is_installed()
        self._session = Session() if asks else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._session is not None:
            self._session.close()

    def check(self, graph: AtOnce | InParts, last: onnx.ModelProto) -> None:
        """Check a model with all its parts but the last.

        Raises:
            InvalidResult: naming the node.
        """
        reason = graph.end(last)
        if reason and not self._source_is(_is_refused):
            raise InvalidResult("ONNX's checker", reason)
        if reason:
            self.say(f"ONNX's checker refuses the source as it does the result: {reason}")
        elif self._session is not None and isinstance(graph, AtOnce):
            self._ask(self._session, graph)

    def _ask(self, session: Session, graph: AtOnce) -> None:
        answer = session.ask(graph.message, _patience(graph))
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

    def _source_is(self, refused: Callable[[AtOnce, onnx.ModelProto], bool]) -> bool:
        if self.source is None:
            return False
        try:
            proto = read.message(self.source)
        except ModelError:
            return False
        graph = AtOnce()
        graph.begin(proto.graph)
        return refused(graph, proto)


def _is_refused(graph: AtOnce, last: onnx.ModelProto) -> bool:
    return graph.end(last) is not None


def _is_refused_plainly(graph: AtOnce, last: onnx.ModelProto) -> bool:
    graph.end(last)
    answer = _plainly(graph)
    return answer is not None and not answer.loads


def _plainly(graph: AtOnce) -> Answer | None:
    session = Session("ORT_DISABLE_ALL")
    try:
        return session.ask(graph.message, _patience(graph))
    finally:
        session.close()


def _patience(graph: AtOnce) -> float:
    """The time limit of loading a model, in seconds."""
    return TIME + TIME_PER_NODE * graph.nodes


def _one_line(text: str) -> str:
    return " ".join(text.split())[:400]
