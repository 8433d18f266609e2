"""A step of a classifier of bags of words, its table updated whole and by rows.

    python benchmarks/sparse_rows.py [--rows 1000000] [--width 64] [--batch 256] [--words 32]

Prints the table of docs/optimizers.md: what is planned and what is measured beside what stays
(table and state), and milliseconds of processor time of a step, in our executor and in stock
onnxruntime, one thread each, the least of several.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir

import gradtool as gt
from gradtool.io.zeros import Zeros

TIMES = 5
MIB = 2**20


def model(rows: int, width: int, words: int) -> ir.Model:
    """The mean of the vectors of some words, and eight classes."""
    made = ir.from_onnx_text(f"""<ir_version: 10, opset_import: ["" : 20]>
    bags (int64[N, {words}] words, float[{rows}, {width}] table, float[{width}, 8] w)
        => (float[N, 8] y) <int64[1] axis = {{1}}> {{
        read = Gather (table, words)
        mean = ReduceMean <keepdims = 0> (read, axis)
        y = MatMul (mean, w)
    }}""")
    for value in [v for v in made.graph.inputs if v.name in ("table", "w")]:
        made.graph.inputs.remove(value)
        value.const_value = Zeros(ir.DataType.FLOAT, value.shape.numpy(), value.name)
        made.graph.register_initializer(value)
    return made


def least(step: Callable[[], object]) -> float:
    """Milliseconds of processor time of the quickest of several calls."""
    found = []
    for _ in range(TIMES):
        start = time.process_time()
        step()
        found.append(time.process_time() - start)
    return min(found) * 1e3


def in_stock(training: gt.TrainingGraph, feeds: dict[str, np.ndarray]) -> float:
    """The same in stock onnxruntime, from the written file."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.onnx"
        gt.save(training, path)
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return least(lambda: session.run(None, feeds))


def main() -> None:
    """Print a row for each optimizer, whole and by rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("rows", 1_000_000), ("width", 64), ("batch", 256), ("words", 32)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    rng = np.random.default_rng(0)
    feeds = {
        "words": rng.integers(0, asked.rows, (asked.batch, asked.words)),
        "labels": rng.integers(0, 8, asked.batch),
    }
    print("| optimizer | gradient | planned beside | measured | ms, ours | ms, onnxruntime |")
    print("|---|---|--:|--:|--:|--:|")
    for optimizer in ("sgd", "adagrad", "adam"):
        for sparse in (False, True):
            graph = gt.load(model(asked.rows, asked.width, asked.words))
            training = gt.grad(graph, loss="ce", optimizer=optimizer, sparse=sparse)
            plan = gt.plan(training, dims={"N": asked.batch})
            stays = plan.total - plan.beside_given
            high = gt.run(training, feeds, measure=True).measurement.high_water
            with gt.Session(training) as session:
                session.step(feeds)
                ours = least(lambda: session.step(feeds))
            stock = in_stock(training, feeds)
            print(
                f"| `{optimizer}` | {'rows' if sparse else 'whole'} "
                f"| {plan.beside_given / MIB:,.1f} MiB | {(high - stays) / MIB:,.1f} MiB "
                f"| {ours:,.1f} | {stock:,.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
