"""Whether stock onnxruntime loads a model: asked in a process of its own, where it may die."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from gradtool import child

Level = Literal["ORT_ENABLE_ALL", "ORT_DISABLE_ALL"]

# What it has no kernel for or does not know yet is no fault of a model.
_NOT_JUDGED = (
    "NotImplemented", "is not a registered function/op", "Unsupported model IR version",
    "ONNX Runtime only *guarantees* support",
)  # fmt: skip
_CHILD = """
import json, sys
import onnxruntime as ort
options = ort.SessionOptions()
options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, sys.argv[1])
options.log_severity_level = 4
options.intra_op_num_threads = options.inter_op_num_threads = 1
model = sys.stdin.buffer.read()
try:
    ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
except Exception as error:
    print(json.dumps([type(error).__name__, str(error)]))
else:
    print("[]")
"""


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
