"""What each rank of a training of a large embedding table takes, whole and by rows.

    python benchmarks/row_tables.py [--ranks 2] [--rows 500000] [--steps 10]

Prints for each way what the ranks planned and measured, the largest of them, and the median step,
as a ratio to that of whole tables in the same run.  The table is of rows of 64, updated by Adam; a
step reads 8192 of them, half of them out of a hundred.  It needs an MPI.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np
import onnx
from ranks_memory import MIB, Measuring

import gradtool as gt
from gradtool.ranks.launch import starter
from gradtool.ranks.mpi import Ranks

WIDTH, BATCH, READS, HOT = 64, 1024, 8, 100
WAYS = {
    "whole": {},
    "by rows": {"shard_tables": ["table"]},
    "stale by 4": {"shard_tables": ["table"], "staleness": 4},
}
NET = """<ir_version: 10, opset_import: ["" : 21]>
net (int64[batch, %d] i) => (float[batch, 3] y) <float[3] b = {0.0, 0.0, 0.0}> {
    r = Gather (table, i)
    axes = Constant <value = int64[1] {1}> ()
    s = ReduceSum <keepdims = 0> (r, axes)
    m = MatMul (s, w)
    y = Add (m, b)
}"""


class Timing(Measuring):
    """Notes when each step ended, too."""

    def __init__(self, *, measures: bool) -> None:
        super().__init__()
        self._measures, self.ends = measures, list[float]()

    def stepped(self, step: int, *given: object) -> None:
        self.ends.append(time.perf_counter())
        if self._measures:
            super().stepped(step, *given)


def rank(path: str, way: str, steps: int) -> None:
    """Train as one rank, once for the time and once for the bytes; the first rank prints them."""
    group = Ranks(timeout=600)
    rows = onnx.load(path).graph.initializer[0].dims[0]
    rng = np.random.default_rng(0)
    indices = rng.integers(0, rows, (BATCH * 4, READS))
    indices[:, ::2] = rng.integers(0, HOT, (BATCH * 4, READS // 2))
    data = {"i": indices, "labels": rng.integers(0, 3, BATCH * 4)}
    options = {"loss": "ce", "optimizer": "adam", "sparse": True, "batch": BATCH, "steps": steps}
    found = []
    for measures in (False, True):
        watcher = Timing(measures=measures)
        if measures:
            tracemalloc.start()
        with gt.Trainer(path, **options, **WAYS[way]) as trainer:
            trainer.fit(data, group=group, watcher=watcher)
            planned = trainer.session.arena_bytes
        found.append(watcher)
    seconds = statistics.median(np.diff(found[0].ends))
    taken = found[1].held + found[1].outside
    each = group.gather(np.array([planned, taken, seconds]))
    if group.rank == 0:
        sys.stdout.write(json.dumps(each.max(0).tolist()) + "\n")
    group.close()


def saved(folder: Path, rows: int) -> str:
    """The model with drawn weights, in a file."""
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(NET % READS)
    for name, shape in (("table", (rows, WIDTH)), ("w", (WIDTH, 3))):
        array = rng.standard_normal(shape, np.float32) * np.float32(0.1)
        model.graph.initializer.insert(0, onnx.numpy_helper.from_array(array, name))
    model.graph.initializer.sort(key=lambda tensor: tensor.name != "table")
    path = folder / "net.onnx"
    onnx.save(model, path)
    return str(path)


def main() -> None:
    """Start the ranks for each way, and print what they took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rank", nargs=2, metavar=("MODEL", "WAY"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        rank(*given.rank, given.steps)
        return
    print("way          planned MiB  measured MiB    ratio  step ms  of whole")
    whole = 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = saved(Path(folder), given.rows)
        for way in WAYS:
            again = [sys.executable, __file__, "--rank", path, way, "--steps", str(given.steps)]
            command = [*starter(given.ranks), *again]
            told = subprocess.run(command, capture_output=True, text=True, check=False)
            if told.returncode:
                sys.exit(told.stderr)
            planned, taken, seconds = json.loads(told.stdout.splitlines()[-1])
            whole = whole or seconds
            print(
                f"{way:12} {planned / MIB:12.1f} {taken / MIB:13.1f} {taken / planned:8.4f}"
                f" {seconds * 1e3:8.1f} {seconds / whole:9.3f}"
            )


if __name__ == "__main__":
    main()
