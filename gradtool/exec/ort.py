"""The written graph in stock onnxruntime, in a process of its own: native code may die."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool import io
from gradtool.errors import DeviceError, GradtoolError
from gradtool.exec.inputs import require
from gradtool.exec.run import Result
from gradtool.functions.calls import inline


def execute(
    model: ir.Model, arrays: Mapping[str, np.ndarray[Any, Any]], *, repeat: int = 1
) -> Result:
    """Run a training graph in onnxruntime on the CPU. `arrays` holds every input, by name.

    Raises:
        GradtoolError: onnxruntime is not installed.
        DeviceError: it refused the graph, or died.
    """
    feeds = require(model, arrays, "inputs")
    with tempfile.TemporaryDirectory(prefix="gradtool-") as folder:
        place = Path(folder)
        io.save(model, place / "model.onnx", finish=inline)
        io.save_arrays(place / "inputs.npz", feeds)
        command = [sys.executable, "-m", __name__, folder, str(repeat)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            reason = lines[-1][:300] if lines else f"it died (exit {done.returncode})"
            if "No module named 'onnxruntime'" in reason:
                raise GradtoolError("onnxruntime is not installed: pip install 'gradtool[ort]'")
            raise DeviceError(f"onnxruntime: {reason}")
        seconds = float(json.loads(done.stdout.splitlines()[-1])["seconds"])
        with np.load(place / "outputs.npz", allow_pickle=False) as found:
            outputs = {name: found[name] for name in found.files}
    names = json.loads(model.metadata_props.get("gradtool.gradients", "{}"))
    loss = model.metadata_props.get("gradtool.loss")
    gradients = {value: outputs.pop(output) for value, output in names.items()}
    return Result(
        loss=float(outputs[loss].reshape(-1)[0]) if loss else None,
        outputs=MappingProxyType(outputs),
        gradients=MappingProxyType(gradients),
        plan=None,
        seconds=seconds,
    )


def _work(folder: str, repeat: int) -> None:
    """The child: load, run, write the outputs beside the inputs."""
    import onnxruntime

    place = Path(folder)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        str(place / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    with np.load(place / "inputs.npz", allow_pickle=False) as loaded:
        wanted = {i.name for i in session.get_inputs()}
        feeds = {name: loaded[name] for name in loaded.files if name in wanted}
    names = [o.name for o in session.get_outputs()]
    taken = []
    for _ in range(max(repeat, 1)):
        start = time.perf_counter()
        results = session.run(names, feeds)
        taken.append(time.perf_counter() - start)
    io.save_arrays(place / "outputs.npz", dict(zip(names, results, strict=True)))
    sys.stdout.write(json.dumps({"seconds": float(np.median(taken))}) + "\n")


if __name__ == "__main__":
    _work(sys.argv[1], int(sys.argv[2]))
