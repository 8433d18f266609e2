"""Files that onnxruntime quantises: gradients straight through against float64.

    python benchmarks/quantised.py [--cases 60] [--first 0]

Draws models (convolutions, pools, Gemm, attention, norms) and how they are quantised (dynamic, QDQ,
QOperator; per channel, reduced range, int8 and uint8). Per file: `grad` without flags; the loss
against that of the file in stock onnxruntime; gradients of our engine and of the written file in
stock onnxruntime against the file run node by node in float64 with PyTorch, rounding let through.
Prints everything that differs, and a closing line.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests")]


def main() -> int:
    """Parse, run, print; the exit code says whether a case was wrong."""
    from quantised import draw, examine

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first case")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    wrong = 0
    for seed in range(given.first, given.first + given.cases):
        case = draw(np.random.default_rng(seed))
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = examine(case, Path(folder), seed)
            except Exception as error:  # noqa: BLE001 - whatever happens is a finding
                found = [f"{type(error).__name__}: {error}"]
        wrong += bool(found)
        for what in found:
            print(f"seed {seed}: {what}\n    {case}")
    print(f"{wrong} of {given.cases} differ")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
