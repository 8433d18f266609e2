"""The written graph in stock onnxruntime, in a process of its own: native code may die.

Its memory is measured there, never promised: the high-water mark of what is resident, and if asked
for, in another process, the bytes that were live at once.  Options are those that take least (see
`ort_options`); a graph that computes values again has barriers.
"""

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

from gradtool import child, io
from gradtool.errors import DeviceError, GradtoolError
from gradtool.exec import ort_memory
from gradtool.exec.array_interop import as_numpy
from gradtool.exec.feeds import require
from gradtool.exec.results import Result
from gradtool.exec.run import planned
from gradtool.graph.training_info import TrainingInfo
from gradtool.io.arrays import save as save_arrays
from gradtool.ops.composites.calls import inline
from gradtool.ops.composites.dead_outputs import drop_unread
from gradtool.passes.ort_allocator.barrier import barrier
from gradtool.passes.plain_casts import plain_casts
from gradtool.passes.refuse_labels import refuse_labels
from gradtool.text.extras import install
from gradtool.workloads import ort_options

# What is resident is what is live, where no arena holds memory and malloc gives all back at once.
LIVE = {"enable_cpu_mem_arena": False}
MMAP = "65536"  # bytes: what is larger is mapped on its own

WARM_UP = """<ir_version: 8, opset_import: ["" : 18]>
warm (float[64, 64] x) => (float[64, 64] y) { y = MatMul (x, x) }"""


def execute(
    model: ir.Model,
    arrays: Mapping[str, np.ndarray[Any, Any]],
    *,
    repeat: int = 1,
    measure: bool = False,
) -> Result:
    """Run a training graph in onnxruntime on the CPU. `arrays` holds every input, by name.

    With `measure`, a second process runs it once for the bytes that are live, beside the plan.

    Raises:
        GradtoolError: onnxruntime is not installed.
        DeviceError: it refused the graph, or died.
    """
    feeds = {name: as_numpy(array) for name, array in require(model, arrays, "inputs").items()}
    with tempfile.TemporaryDirectory(prefix="gradtool-") as folder:
        place = Path(folder)
        io.save(model, place / "model.onnx", finish=_finish)
        save_arrays(place / "inputs.npz", feeds)
        measured = _measured(place, repeat, ort_options.LEAN)
        live = _measured(place, 1, {**ort_options.LEAN, **LIVE}) if measure else {}
        with np.load(place / "outputs.npz", allow_pickle=False) as found:
            outputs = {name: found[name] for name in found.files}
    info = TrainingInfo.of(model)
    names = {value: output for value, output in info.gradients.items() if output in outputs}
    gradients = {value: outputs.pop(output) for value, output in names.items()}
    return Result(
        loss=float(outputs[info.loss].reshape(-1)[0]) if info.loss else None,
        outputs=MappingProxyType(outputs),
        gradients=MappingProxyType(gradients),
        plan=None,
        seconds=measured["seconds"],
        ort_peak_bytes=measured["peak_bytes"],
        ort_live_bytes=live.get("peak_bytes"),
        ort_planned_bytes=planned(model, {}).beside_given if measure else None,
    )


def _finish(model: ir.Model) -> None:
    """Finish a model for stock runtimes, as the command line does before it writes."""
    refuse_labels(model)
    inline(model)
    drop_unread(model)
    plain_casts(model)
    barrier(model)


def _measured(place: Path, repeat: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """Time and memory measured by a process that runs the files in a folder."""
    command = child.running(__name__, str(place), str(repeat), json.dumps(dict(options)))
    malloc = {} if options.get("enable_cpu_mem_arena", True) else {"MALLOC_MMAP_THRESHOLD_": MMAP}
    done = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=False, env=child.environment(**malloc)
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        reason = lines[-1][:300] if lines else f"it died (exit {done.returncode})"
        if "No module named 'onnxruntime'" in reason:
            raise GradtoolError(f"onnxruntime is not installed: {install('ort')}")
        raise DeviceError(f"onnxruntime: {reason}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _work(folder: str, repeat: int, options: Mapping[str, Any]) -> None:
    """The child: load, run, write the outputs beside the inputs."""
    place = Path(folder)
    session = ort_options.session(str(place / "model.onnx"), options)
    with np.load(place / "inputs.npz", allow_pickle=False) as loaded:
        wanted = {i.name for i in session.get_inputs()}
        feeds = {name: loaded[name] for name in loaded.files if name in wanted}
    names = [o.name for o in session.get_outputs()]
    _warm_up(options)
    results: list[Any] = []
    taken = []
    start = ort_memory.begin()
    for _ in range(max(repeat, 1)):
        results.clear()
        began = time.perf_counter()
        results += session.run(names, feeds)
        taken.append(time.perf_counter() - began)
    peak = ort_memory.growth(start)
    save_arrays(place / "outputs.npz", dict(zip(names, results, strict=True)))
    measured = {"seconds": float(np.median(taken)), "peak_bytes": peak}
    sys.stdout.write(json.dumps(measured) + "\n")


def _warm_up(options: Mapping[str, Any]) -> None:
    """Multiply small matrices, as onnxruntime keeps the allocations of its first products."""
    import onnx

    model = onnx.parser.parse_model(WARM_UP)
    square = np.ones((64, 64), np.float32)
    ort_options.session(model.SerializeToString(), options).run(None, {"x": square})


if __name__ == "__main__":
    _work(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]))
