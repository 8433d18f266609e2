"""A step of a kit in Node and in Python, in milliseconds, on the same threads, in turn.

    python benchmarks/kit_node.py [MODEL BATCH.npz] [--threads 1] [--steps 300] [--rounds 5]

The model is the transformer of `samples` where none is named.  Both run stock onnxruntime on the
same kit, Python as `samples/kit/train.py` does, Node by `gradtool-kit`; threads do not spin.  Each
round starts both programs, one after the other.  Printed are the least step of all rounds, and of
each round's median step and processor time for a step (of all threads) the median.  The ratios are
to be at most 1.2; on a busy machine that of the median step says nothing.

The two packages of onnxruntime are seldom of one version: both are printed.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import gradtool as gt
from gradtool.io import safetensors

SAMPLES = Path(__file__).parents[1] / "samples"
MODULES = SAMPLES / "kit" / "node_modules"
AIM = 1.2
PYTHON = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import numpy as np
import onnxruntime as ort
from train import Kit
folder, batch, threads, steps = Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
options = ort.SessionOptions()
options.intra_op_num_threads = threads
options.add_session_config_entry("session.intra_op.allow_spinning", "0")
kit, batch = Kit(folder, options), dict(np.load(batch))
taken = []
for step in range(-(steps // 5), steps):
    if step == 0:
        before = time.process_time()
    start = time.perf_counter()
    kit.step(batch)
    taken += [1e3 * (time.perf_counter() - start)] * (step >= 0)
print(ort.__version__, 1e3 * (time.process_time() - before) / steps, *taken)
"""
NODE = """
import { readFile } from "node:fs/promises";
import * as ort from "onnxruntime-node";
import { Kit, readTensors } from "gradtool-kit";
const [folder, file, threads, steps] = process.argv.slice(2);
const kit = await Kit.open(ort, folder, { intraOpNumThreads: Number(threads) });
const batch = readTensors(ort, await readFile(file));
const taken = [];
let before;
for (let step = -Math.floor(steps / 5); step < steps; step++) {
  if (step === 0) before = process.cpuUsage();
  const start = performance.now();
  await kit.step(batch);
  if (step >= 0) taken.push(performance.now() - start);
}
const { user, system } = process.cpuUsage(before);
console.log(ort.env.versions.node, (user + system) / 1e3 / steps, ...taken);
"""


def timed(*command: object, folder: Path) -> tuple[str, list[float]]:
    """The version of a runtime, and a step: the least, the median, and the processor's time."""
    done = subprocess.run(
        [*map(str, command)], cwd=folder, check=True, capture_output=True, text=True
    )
    version, processor, *taken = done.stdout.split()
    numbers = [*map(float, taken)]
    return version, [min(numbers), statistics.median(numbers), float(processor)]


def main() -> None:
    """Print the times of a step in Python and in Node, and their ratios."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("model", nargs="?", default=SAMPLES / "transformer.onnx")
    arguments.add_argument("batch", nargs="?", default=SAMPLES / "transformer.npz")
    for name, number in {"threads": 1, "steps": 300, "rounds": 5}.items():
        arguments.add_argument(f"--{name}", type=int, default=number)
    given = arguments.parse_args()
    if not (MODULES / "onnxruntime-node").is_dir():
        raise SystemExit("no npm packages: (cd samples/kit && npm install --ignore-scripts)")
    print(f"{'':26}    least   median  processor")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        gt.write_kit(gt.grad(gt.load(given.model), optimizer="adamw"), folder / "kit")
        with np.load(given.batch) as batch:
            np.savez(folder / "batch.npz", **batch)
            safetensors.save(folder / "batch.safetensors", dict(batch))
        (folder / "node_modules").symlink_to(MODULES)
        (folder / "step.mjs").write_text(NODE)
        count = (given.threads, given.steps)
        commands = {
            "Python": (sys.executable, "-c", PYTHON, SAMPLES / "kit", "kit", "batch.npz", *count),
            "Node": ("node", "step.mjs", "kit", "batch.safetensors", *count),
        }
        rounds = [
            {name: timed(*words, folder=folder) for name, words in commands.items()}
            for _ in range(given.rounds)
        ]
    found = {}
    for name in commands:
        least, *others = zip(*(each[name][1] for each in rounds), strict=True)
        found[name] = [min(least), *map(statistics.median, others)]
        version = rounds[0][name][0]
        print(f"{name:6} onnxruntime {version:7}", *map("{:8.3f}".format, found[name]), "ms")
    ratios = np.divide(found["Node"], found["Python"])
    print(f"{'ratio':26}", *map("{:8.2f}".format, ratios), f"(aim {AIM})")


if __name__ == "__main__":
    main()
