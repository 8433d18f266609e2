"""Walks all pairs of options of every command: each changes something, or is refused.

    python benchmarks/options.py [COMMAND...] [--every N]

Prints each pair that does neither, and a closing line; exits 1 if there is one.  All take one to
two hours on a core; `--every` takes one pair in N.
"""

from __future__ import annotations

import argparse
import collections
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from pairs import Walk, pairs


def main() -> int:
    """1 if a pair does nothing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commands", nargs="*", metavar="COMMAND")
    parser.add_argument("--every", type=int, default=1, metavar="N")
    asked = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        walk = Walk(Path(folder))
        walk.prepare()
        chosen = [p for p in pairs() if not asked.commands or p[0] in asked.commands]
        for command, base, first, second in chosen[:: asked.every]:
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
    sys.exit(main())
