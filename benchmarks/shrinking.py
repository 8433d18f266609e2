"""Commands whose files are cut while they are read: refused in one line, or right; never killed.

    python benchmarks/shrinking.py [--only NAME] [--every 1]

Each kind of file and command, after every look of the command at the file, cut to three sizes.
Exits with 1 where a command died, said something else, wrote something, or computed other bytes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))


def main() -> int:
    """Print the cuts that are neither refused nor right, and a closing line; 1 if there is one."""
    from shrinking import SIZES, SUBJECTS, Cutting, made

    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=SUBJECTS)
    parser.add_argument("--every", type=int, default=1, help="look at one of so many cuts")
    asked = parser.parse_args()
    found, drawn = Counter[str](), 0
    with tempfile.TemporaryDirectory() as folder:
        whole = made(Path(folder, "whole"))
        for name in [asked.only] if asked.only else SUBJECTS:
            cutting = Cutting(whole, Path(folder, "place"), name)
            print(f"{name}: {cutting.looks} looks", flush=True)
            for number in range(1, cutting.looks + 1):
                for size in SIZES:
                    drawn += 1
                    if drawn % asked.every:
                        continue
                    trial = cutting.trial(number, size)
                    kind = trial.said if trial.said in ("refused", "right") else "wrong"
                    found[kind] += 1
                    if kind == "wrong":
                        print(trial, flush=True)
    print(
        f"{found.total()} cuts: {found['refused']} refused in one line, {found['right']} right, "
        f"{found['wrong']} wrong"
    )
    return int(found["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
