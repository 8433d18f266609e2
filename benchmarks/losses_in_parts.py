"""Losses put together from parts of a batch against the whole batch by PyTorch, in float64.

python benchmarks/losses_in_parts.py [--seeds 3]

Each loss is computed in micro-batches, under a memory, on ranks (forks), in stages, and evaluated
in batches of which the last is short, by an open model and by one that fixes its batch.  Its first
two examples are like any.  A loss that mixes examples must be refused.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from loss_parts import CASES
from loss_parts_ways import WAYS, tried


def main() -> int:
    """Print the trainings that come to something else, and a closing line; 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    count = refused = wrong = 0
    for name in CASES:
        for way in WAYS:
            for seed in range(seeds):
                found = tried(name, way, seed)
                count += 1
                refused += found == "refused"
                if found not in ("same", "refused"):
                    wrong += 1
                    print(f"{name} / {way} / seed {seed}: {found}", flush=True)
    print(
        f"{len(CASES)} losses in {len(WAYS)} ways: {count} trainings, {refused} refused as they "
        f"have to be, {wrong} wrong"
    )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
