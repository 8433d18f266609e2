"""Seconds of a step with one thread of the matrix products and with several, idle and busy.

    python benchmarks/threads.py [--model samples/cnn.onnx] [--batch 32] [--threads 2] [--rounds 3]

Runs of the command line alternate; the least and the median of each are printed, and whether the
gradients of all runs with one number of threads have the same bits.  A busy machine is one with a
process that counts on each core.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]


@contextmanager
def busy(cores: int) -> Iterator[None]:
    """Every core counts."""
    counting = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores)]
    try:
        yield
    finally:
        for each in counting:
            each.kill()
            each.wait()


def step(model: str, batch: int, threads: int, folder: Path) -> tuple[float, bytes]:
    """Seconds of a step, and the file of its gradients."""
    file = folder / "grads.npz"
    command = [sys.executable, "-m", "gradtool", "run", model, "--batch", str(batch)]
    flags = ["--repeat", "5", "--threads", str(threads), "--format", "json", "--force"]
    done = subprocess.run(
        [*command, *flags, "--save-grads", str(file)], capture_output=True, check=True
    )
    return float(json.loads(done.stdout)["seconds"]), file.read_bytes()


def main() -> None:
    """Print a line for each number of threads and each state of the machine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=str(ROOT / "samples" / "cnn.onnx"))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    numbers = sorted({1, asked.threads})
    bits: dict[int, set[bytes]] = {n: set() for n in numbers}
    with tempfile.TemporaryDirectory() as folder:
        for cores in (0, os.cpu_count() or 1):
            taken: dict[int, list[float]] = {n: [] for n in numbers}
            with busy(cores):
                for _ in range(asked.rounds):
                    for n in numbers:
                        seconds, grads = step(asked.model, asked.batch, n, Path(folder))
                        taken[n].append(seconds)
                        bits[n].add(grads)
            for n in numbers:
                low, middle = min(taken[n]), statistics.median(taken[n])
                print(f"{cores} counting, {n} threads: least {low:.3f} s, median {middle:.3f} s")
    for n in numbers:
        print(f"{n} threads: {'the same bits' if len(bits[n]) == 1 else 'bits differ'}")


if __name__ == "__main__":
    main()
