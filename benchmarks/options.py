"""Walks all pairs of options of every command: each changes something, or is refused.

    python benchmarks/options.py [COMMAND...]

Prints each pair that does neither, and a closing line; exits 1 if there is one.
"""

from __future__ import annotations

import collections
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from pairs import Walk, pairs


def main(wanted: list[str]) -> int:
    """The number of pairs that do nothing."""
    counts: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        walk = Walk(Path(folder))
        walk.prepare()
        for command, base, first, second in pairs():
            if wanted and command not in wanted:
                continue
            fault = walk.fault(command, base, first, second)
            counts["pairs"] += 1
            counts["faults"] += fault is not None
            if fault is not None:
                print(fault, flush=True)
        counts["lines"] = len(walk.seen)
        counts["refused"] = sum(seen.refused is not None for seen in walk.seen.values())
    print(
        f"{counts['pairs']} pairs, {counts['lines']} command lines, {counts['refused']} refused, "
        f"{counts['faults']} do nothing"
    )
    return min(counts["faults"], 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
