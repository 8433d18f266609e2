"""Ten trainings of several kinds, from files by the command line, beside PyTorch eager.

    python benchmarks/jobs.py [NAME…] [--seeds 3]

needs torch, an exporter (onnxscript), scikit-learn and Pillow.  Each job writes a module's ONNX
file and data to the disk and runs `gradtool train`, and PyTorch eager on the same module, weights
and optimizer in another order of data, each in a process of its own and on one thread, for each
seed; the generator and discriminator are two sessions in Python.  Neither writes checkpoints on
the way.  `figure` is that of what onnxruntime makes of the trained file on data that neither has
seen: ours (the median) and the least and the largest of PyTorch's; `step` is ours over PyTorch's of
processor time, `peak` of the most memory that the processes held, libraries included.  Exit code 1:
a figure is worse than PyTorch's by more than the spread of those, or a ratio is above 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime
import torch
from job_gan import distance
from job_gan_torch import write
from job_kinds import JOBS, Job, npz

HERE = Path(__file__).resolve().parent
SPREAD = 1.0  # of PyTorch's own, on either side of it


@dataclass(frozen=True)
class Side:
    """What a side comes to with a seed: its figure, seconds of a step, bytes of the process."""

    figure: float
    step: float
    peak: int


def child(words: list[str], folder: Path) -> dict[str, Any]:
    """Run a process in a folder that measures itself. Returns what it measured."""
    clock = folder / "clock.json"
    path = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "JOB_CLOCK": str(clock)}
    for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        environment[threads] = "1"
    ran = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise SystemExit(f"{' '.join(words)}: exit code {ran.returncode}\n{ran.stderr}{ran.stdout}")
    return json.loads(clock.read_text())


def written(job: Job, folder: Path, seed: int) -> tuple[list[str], dict[str, np.ndarray[Any, Any]]]:
    """The model, the weights it begins with, and the data; the words for these, and the test."""
    module, (train, test) = job.module(seed), job.data()
    job.before(module, train)
    torch.save(module.state_dict(), folder / "start.pt")
    np.savez(folder / "train_arrays.npz", **train)
    np.savez(folder / "test_arrays.npz", **test)
    examples = tuple(torch.from_numpy(train[name][:2]) for name in job.inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(), examples, folder / "model.onnx", dynamo=True, optimize=False,
            input_names=list(job.inputs), output_names=list(job.outputs), verbose=False,
            dynamic_shapes=tuple({0: "batch"} for _ in examples), external_data=False,
        )  # fmt: skip
    return list((job.write or npz)(folder, train, test)), test


def ours(job: Job, folder: Path, words: list[str], seed: int) -> dict[str, Any]:
    """Train by the command line."""
    return child(
        ["-m", "gradtool", "train", "model.onnx", *words, *job.words, "--batch", str(job.batch),
         "--steps", str(job.steps), "--lr", str(job.rate), "--seed", str(seed),
         "--checkpoint-every", str(job.steps), "--callback", "job_clock:Clock", "-o",
         "trained.onnx", "-q"],
        folder,
    )  # fmt: skip


def sides(job: Job, seed: int) -> tuple[Side, Side]:
    """Ours, and PyTorch's."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words, test = written(job, folder, seed)
        mine = ours(job, folder, words, seed)
        runtime = onnxruntime.InferenceSession(folder / "trained.onnx")
        found = runtime.run(list(job.outputs), {n: test[n] for n in job.inputs})
        theirs = child([str(HERE / "job_eager.py"), job.name, str(folder), str(seed)], folder)
        with np.load(folder / "eager.npz") as given:
            eager = dict(given)
        own = dict(zip(job.outputs, found, strict=True))
        return (
            Side(job.figure(own, test), mine["step"], mine["peak"]),
            Side(job.figure(eager, test), theirs["step"], theirs["peak"]),
        )


def in_turn(seed: int) -> tuple[Side, Side]:
    """Ours, and PyTorch's, of a generator and a discriminator."""
    with tempfile.TemporaryDirectory() as name:
        folder, found = Path(name), []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            write(folder, seed)
        for script, points in (("job_gan.py", "ours.npy"), ("job_gan_torch.py", "eager.npy")):
            taken = child([str(HERE / script), str(folder), str(seed)], folder)
            found.append(Side(distance(np.load(folder / points)), taken["step"], taken["peak"]))
        return found[0], found[1]


def main() -> int:
    """Print a row for each job."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    print(
        f"{'job':<14}{'figure':>10}{'PyTorch':>20}{'step':>12}{'ratio':>8}{'peak':>10}{'ratio':>8}"
    )
    failed = False
    ways = {job.name: (partial(sides, job), job.higher) for job in JOBS}
    ways["gan"] = in_turn, False
    for name in asked.names or ways:
        run, higher = ways[name]
        pairs = [run(seed) for seed in range(asked.seeds)]
        mine, theirs = ([pair[side] for pair in pairs] for side in (0, 1))
        figure, found = median(each.figure for each in mine), [each.figure for each in theirs]
        room = SPREAD * (max(found) - min(found))
        step, peak = (
            median(getattr(a, what) / getattr(b, what) for a, b in pairs)
            for what in ("step", "peak")
        )
        worse = figure < min(found) - room if higher else figure > max(found) + room
        failed |= worse or max(step, peak) > 1
        print(
            f"{name:<14}{figure:>10.4f}{min(found):>10.4f}–{max(found):<9.4f}"
            f"{1e3 * mine[0].step:>9.2f} ms{step:>8.2f}{mine[0].peak / 2**20:>6.0f} MiB{peak:>8.2f}"
            + ("  worse" if worse else ""),
            flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
