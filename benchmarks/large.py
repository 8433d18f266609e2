"""`gradtool grad` on a synthetic model of many nodes: seconds and peak memory of the command.

    python benchmarks/large.py [--nodes 20000] [--json FILE]

The model is a chain of residual blocks of matrix products, normalisations, attention-like
reshapes and activations with a symbolic batch. Seconds are those of the whole command, interpreter
start included; the limit is on processor time, which others on the machine change less. Memory is
the largest resident set of its process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH = 16
SECONDS = 15.0
BYTES = 1536 * 2**20


def model(nodes: int) -> onnx.ModelProto:
    """A chain of blocks of 20 nodes each, with weights of their own."""
    made: list[onnx.NodeProto] = []
    weights = [
        numpy_helper.from_array(np.array([0, 0, 4, WIDTH // 4], np.int64), "split"),
        numpy_helper.from_array(np.array([0, 0, WIDTH], np.int64), "merge"),
        numpy_helper.from_array(np.float32(0.5), "half"),
    ]
    x = "x"
    for index in range(nodes // 20):
        made += _block(f"b{index}", x, weights)
        x = f"b{index}/y"
    graph = helper.make_graph(
        made,
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8, WIDTH])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, ["batch", 8, WIDTH])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def _block(name: str, x: str, weights: list[onnx.TensorProto]) -> list[onnx.NodeProto]:
    def weight(label: str, *shape: int) -> str:
        array = np.full(shape, 1 / WIDTH, np.float32)
        weights.append(numpy_helper.from_array(array, f"{name}/{label}"))
        return f"{name}/{label}"

    nodes: list[onnx.NodeProto] = []

    def node(op: str, label: str, *inputs: str, **attributes: object) -> str:
        output = f"{name}/{label}"
        nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    n = node(
        "LayerNormalization", "norm", x, weight("scale", WIDTH), weight("shift", WIDTH), axis=-1
    )
    heads = []
    for label in "qkv":
        h = node("MatMul", f"{label}_product", n, weight(f"{label}_w", WIDTH, WIDTH))
        h = node("Reshape", f"{label}_split", h, "split")
        heads.append(node("Transpose", label, h, perm=[0, 2, 1, 3]))
    keys = node("Transpose", "keys", heads[1], perm=[0, 1, 3, 2])
    scores = node("Mul", "scaled", node("MatMul", "scores", heads[0], keys), "half")
    mixed = node("MatMul", "mixed", node("Softmax", "weights", scores, axis=-1), heads[2])
    merged = node("Reshape", "merged", node("Transpose", "back", mixed, perm=[0, 2, 1, 3]), "merge")
    hidden = node("Add", "biased", merged, weight("bias", WIDTH))
    node("Add", "y", x, node("Tanh", "active", hidden))
    return nodes


def measured(command: list[str]) -> tuple[float, float, int, str]:
    """Wall seconds, processor seconds, peak bytes and output of a command."""
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        said = process.stdout.read() if process.stdout else ""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the command failed with {process.returncode}")
    wall, used = time.perf_counter() - start, usage.ru_utime + usage.ru_stime
    return wall, used, usage.ru_maxrss * 1024, said


def main() -> int:
    """Parse, run, print; the exit code says whether a row failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        path, output = Path(scratch) / "large.onnx", Path(scratch) / "large.grad.onnx"
        proto = model(arguments.nodes)
        onnx.save(proto, path)
        command = [sys.executable, "-m", "gradtool", "grad", str(path), "--loss", "mean"]
        wall, seconds, peak, said = measured([*command, "-o", str(output), "--format", "json"])
        row = {
            "nodes": len(proto.graph.node),
            "wall_seconds": round(wall, 2),
            "processor_seconds": round(seconds, 2),
            "peak_bytes": peak,
            "written": json.loads(said)["nodes"],
        }
    if arguments.json:
        arguments.json.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
    took = f"{wall:.1f} s, of the processor {seconds:.1f} s"
    print(f"{row['nodes']} nodes: {took}, {peak / 2**20:.0f} MiB at most")
    print(f"limits: {SECONDS:.0f} s, {BYTES / 2**20:.0f} MiB")
    return int(seconds > SECONDS or peak > BYTES)


if __name__ == "__main__":
    sys.exit(main())
