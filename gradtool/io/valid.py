"""Validity of written models: for ONNX's checker, and for onnxruntime.

Weights are left out of the check: they count as inputs.  So do scales of Resize such as 0.7, by
which ONNX's checker makes 6 of 10 and every runtime 7.  Notes on nodes are left out as well, which
nobody checks.  A file refused for the same reason as its source has no defect of ours.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, Self

import onnx

from gradtool import child
from gradtool.errors import InvalidResult, ModelError
from gradtool.io import read
from gradtool.io.checkable import MOST_AT_ONCE, AtOnce, InParts
from gradtool.io.read import Source

# Seconds that onnxruntime may take to load a model, a fixed part and one for each node.
TIME, TIME_PER_NODE = 20.0, 1e-3

Say = Callable[[str], object]
Level = Literal["ORT_ENABLE_ALL", "ORT_DISABLE_ALL"]
# What it has no kernel for or does not know yet is no fault of a model.
_NOT_JUDGED = (
    "NotImplemented", "is not a registered function/op", "Unsupported model IR version",
    "ONNX Runtime only *guarantees* support",
)  # fmt: skip
_CHILD = """
import gc, json, os, sys
gc.disable()
import onnxruntime as ort
options = ort.SessionOptions()
options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, sys.argv[1])
options.log_severity_level = 4
options.intra_op_num_threads = options.inter_op_num_threads = 1
model = sys.stdin.buffer.read()
try:
    ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
except Exception as error:
    print(json.dumps([type(error).__name__, str(error)]), flush=True)
else:
    print("[]", flush=True)
os._exit(0)  # to unload what a session takes is as long as to start Python
"""


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


@dataclass(frozen=True)
class Answer:
    """The answer of onnxruntime: a model loads, the reason why not, or nothing in time."""

    loads: bool
    reason: str = ""


class Session:
    """A process with onnxruntime imported, asked about one model.

    It starts at once, so that it is ready when the model is.
    """

    def __init__(self, level: Level = "ORT_ENABLE_ALL") -> None:
        command = child.python("-c", _CHILD, level)
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter, with the text above
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=child.environment()
        )

    def close(self) -> None:
        """End the process, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
        for pipe in filter(None, (self._process.stdin, self._process.stdout)):
            with suppress(OSError):  # unsent bytes have no reader
                pipe.close()
        self._process.wait()

    def ask(self, model: bytes, seconds: float) -> Answer | None:
        """Whether it loads a model; None where it cannot tell, or not within the time given."""
        try:
            said, _ = self._process.communicate(model, timeout=seconds)
        except subprocess.TimeoutExpired:
            return None
        code = self._process.returncode
        if code > 0:  # it is not there after all, or cannot be used
            return None
        if code < 0:
            return Answer(loads=False, reason=f"it died (signal {-code})")
        found = json.loads(said.splitlines()[-1])
        if not found:
            return Answer(loads=True)
        reason = ": ".join(found)
        if any(words in reason for words in _NOT_JUDGED):
            return None
        return Answer(loads=False, reason=found[1])


def is_installed() -> bool:
    """Whether there is an onnxruntime to ask."""
    return importlib.util.find_spec("onnxruntime") is not None
