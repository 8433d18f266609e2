"""Damages files of runs, kits, baselines and plans, and judges what commands make of them.

    python benchmarks/damage.py [--files 200] [--seed 0]

A file is torn, changed, swapped for that of another run, or replaced by a link, a pipe, a folder or
nothing.  The command that reads it must refuse it in one line, or do what it would have done; the
target of a link must stay as it is.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from damages import made, trials


def main() -> int:
    """Print what is wrong, and how many files came to what; exit with 1 if any is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    found = Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        whole = made(Path(folder, "whole"))
        for what, said in trials(whole, Path(folder, "trial"), asked.files, asked.seed):
            kind = said if said in ("refused", "right") else "wrong"
            found[kind] += 1
            if kind == "wrong":
                print(f"{what}: {said}", flush=True)
    print(
        f"{asked.files} files: {found['refused']} refused in one line, {found['right']} right, "
        f"{found['wrong']} wrong"
    )
    return int(found["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
