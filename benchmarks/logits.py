"""What the cross-entropy of many classes by blocks saves: planned, measured, and its time.

    python benchmarks/logits.py [--classes 32000] [--rows 512] [--width 256] [--kernels native]

The model is one linear layer and `ce`, with its weight trained, frozen, and frozen in 4 bits, which
DequantizeLinear decodes by blocks of 32.  Each row is a process of its own; onnxruntime's peak is
beside inputs and weights.  Seconds are the least of processor time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from onnx import parser

import gradtool as gt

HERE = Path(__file__).resolve()
FORMS = {"plain": False, "by blocks": True}
HEADS = {"trained": ["w", "gain"], "frozen": ["gain"], "4 bits": ["gain"]}
BLOCK = 32


def parsed() -> argparse.Namespace:
    reader = argparse.ArgumentParser(description=__doc__)
    for name, default in (("classes", 32000), ("rows", 512), ("width", 256), ("repeat", 5)):
        reader.add_argument(f"--{name}", type=int, default=default)
    reader.add_argument("--kernels", choices=("native", "numpy"), default="native")
    reader.add_argument("--only", help="Measure one form and head, and print them as JSON.")
    return reader.parse_args()


def model(asked: argparse.Namespace, head: str) -> onnx.ModelProto:
    """A gain of each input and a linear layer."""
    coded = head == "4 bits"
    decoded = f"w = DequantizeLinear <axis = 1, block_size = {BLOCK}> (codes, scales)"
    made = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        head (float[{asked.rows}, {asked.width}] x) => (float[{asked.rows}, {asked.classes}] y)
        {{ {decoded if coded else ""} h = Mul(x, gain)
           turned = Transpose<perm = [1, 0]>(w) y = MatMul(h, turned) }}""")
    rng = np.random.default_rng(0)
    shape = asked.classes, asked.width
    held: dict[str, np.ndarray] = {"gain": np.ones(asked.width, np.float32)}
    if coded:
        held["codes"] = rng.integers(-8, 8, shape).astype(ml_dtypes.int4)
        held["scales"] = np.full((shape[0], -(-shape[1] // BLOCK)), 0.005, np.float32)
    else:
        held["w"] = rng.normal(0, 0.02, shape).astype(np.float32)
    made.graph.initializer.extend(onnx.numpy_helper.from_array(v, k) for k, v in held.items())
    return made


def least(step: Callable[[], object], repeat: int) -> float:
    """The least processor time of a step."""
    found = []
    for _ in range(repeat + 1):
        start = time.process_time()
        step()
        found.append(time.process_time() - start)
    return min(found)


def stock(path: Path, feeds: dict[str, np.ndarray]) -> Callable[[], object]:
    """A step of stock onnxruntime on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return partial(session.run, None, feeds)


def measured(asked: argparse.Namespace) -> dict[str, float]:
    """Bytes and seconds of a form."""
    form, head = asked.only.split("/")
    rng = np.random.default_rng(1)
    feeds = {
        "x": rng.normal(size=(asked.rows, asked.width)).astype(np.float32),
        "labels": rng.integers(0, asked.classes, asked.rows),
    }
    training = gt.grad(
        gt.load(model(asked, head)), loss="ce:y", wrt=HEADS[head], only_loss=True,
        fuse_loss=FORMS[form],
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "written.onnx"
        gt.save(training, path)
        taken = gt.run(gt.load(path), feeds, engine="ort")
        theirs = least(stock(path, feeds), asked.repeat)
    with gt.Session(training, kernels=asked.kernels) as session:
        ours = least(partial(session.step, feeds), asked.repeat)
    found = gt.run(training, feeds, measure=True, copy=False, kernels=asked.kernels)
    assert found.plan is not None and found.measurement is not None  # noqa: PT018, S101
    return {
        "planned": found.plan.total / 2**20,
        "measured": found.measurement.peak / 2**20,
        "onnxruntime": (taken.ort_peak_bytes or 0) / 2**20,
        "ours s": ours,
        "onnxruntime s": theirs,
    }


def main() -> None:
    """A row for each form and head."""
    asked = parsed()
    if asked.only:
        sys.stdout.write(json.dumps(measured(asked)))
        return
    for head in HEADS:
        for form in FORMS:
            command = [sys.executable, str(HERE), *sys.argv[1:], "--only", f"{form}/{head}"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            row = json.loads(done.stdout)
            said = (
                f"{k} {v:.3f}" if k.endswith(" s") else f"{k} {v:.1f} MiB" for k, v in row.items()
            )
            sys.stdout.write(f"{head:8} {form:10} {'   '.join(said)}\n")


if __name__ == "__main__":
    main()
