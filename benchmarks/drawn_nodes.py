"""A sweep over nodes drawn by seed: its options, its rows and its closing line."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable

Row = tuple[str, list[str], str, str]  # the node, what is wrong with it, what is left out, its kind


def sweep(examine: Callable[[int], Row], title: str, *, cases: int) -> int:
    """Parse options, examine nodes, print what differs; 1 if a node does."""
    import pool

    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--cases", type=int, default=cases)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first case")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.cases)
    kinds: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    wrong = 0
    for seed, row in sorted(pool.results(examine, seeds, given.processes), key=lambda r: r[0]):
        case, found, excluded, kind = row or ("", ["the process died"], "", "?")
        kinds[kind] += 1
        reasons[excluded] += bool(excluded)
        wrong += bool(found)
        for what in found:
            print(f"seed {seed}: {what}\n    {case}")
    for reason, count in sorted((+reasons).items()):
        print(f"{count:>6}  {reason}")
    counted = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    print(f"{given.cases} nodes ({counted}): {wrong} wrong")
    return int(wrong > 0)
