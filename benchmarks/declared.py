"""Mutates the shapes that model files declare for values and outputs: no result may change.

    python benchmarks/declared.py FILE_OR_FOLDER... [--seeds N]

Each file is differentiated without its declarations, then with drawn ones of each kind (another
rank, another size, -1, 0, symbols); the training graphs must be the same, byte for byte. Prints
each difference and a closing line; exits 1 if there is one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from declared_shapes import KINDS, declared_otherwise, undeclared

import gradtool as gt
from gradtool.errors import GradtoolError


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    files = [f for p in args.paths for f in (sorted(p.rglob("*.onnx")) if p.is_dir() else [p])]
    counts = {"files": 0, "mutants": 0, "differences": 0, "left out": 0}
    with tempfile.TemporaryDirectory() as folder:
        for path in files:
            _file(path, Path(folder), args.seeds, counts)
    print(", ".join(f"{number} {what}" for what, number in counts.items()))
    return min(counts["differences"], 1)


def _file(path: Path, folder: Path, seeds: int, counts: dict[str, int]) -> None:
    """Compare all mutants of a file with it; one that has no gradient as it is is left out."""
    try:
        model = onnx.load(path)
        plain = _written(undeclared(model), folder)
    except (GradtoolError, OSError, ValueError) as error:
        counts["left out"] += 1
        print(f"{path}: left out: {str(error)[:150]}", flush=True)
        return
    counts["files"] += 1
    for kinds in (*((kind,) for kind in KINDS), KINDS):
        for seed in range(seeds):
            counts["mutants"] += 1
            try:
                same = _written(declared_otherwise(model, seed, kinds), folder) == plain
                why = "another training graph"
            except GradtoolError as error:
                same, why = False, str(error)[:150]
            if not same:
                counts["differences"] += 1
                print(f"{path}: {', '.join(kinds)}, seed {seed}: {why}", flush=True)


def _written(model: onnx.ModelProto, folder: Path) -> bytes:
    path = folder / "grad.onnx"
    gt.save(gt.grad(gt.load(model)), path, force=True, external_data="never")
    return path.read_bytes()


if __name__ == "__main__":
    sys.exit(main())
