"""Random cases of every operator that has a gradient, against onnxruntime and differences.

    python benchmarks/operator_cases.py [OPERATOR | OPERATOR:NUMBER …] [--per-operator 40]
        [--first 0] [--processes 2] [--json FILE]

Draws shapes (sizes 0 and 1, ranks 0 to 5), attributes, optional inputs and types as the standard
allows them.  A case is judged by what `tests/drawn/judge.py` says: values against onnxruntime,
gradients against five-point differences in float64, the written file in stock onnxruntime at its
default options, the same with sizes left open, and inferred shapes against those that come out.
Prints what is wrong, what is left out and why, and the counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
CHECKS = ("forward", "forward in onnxruntime", "differences", "gradient", "written", "open")


def examine(name: str) -> dict[str, Any]:
    """The verdict on the case of a name, as plain data."""
    from drawn import every  # noqa: F401 - it registers
    from drawn.case import draw
    from drawn.judge import judge

    return vars(judge(draw(name)))


def sweep(names: Sequence[str], processes: int) -> list[dict[str, Any]]:
    """The verdicts on cases, in the order of their names. A process that dies is wrong."""
    import pool

    found = dict(pool.results(examine, names, processes))
    died = {"wrong": ["the process died"], "excluded": [], "asked": []}
    return [found[n] or {"name": n, "text": n, **died} for n in names]


def show(verdicts: Sequence[dict[str, Any]]) -> int:
    """Print what was found; the exit code says whether anything is wrong."""
    for verdict in verdicts:
        for wrong in verdict["wrong"]:
            print(f"{verdict['text']}\n    {wrong}")
    asked = Counter(check for v in verdicts for check in v["asked"])
    left = Counter(reason for v in verdicts for reason in v["excluded"])
    print("left out:")
    for reason, count in sorted(left.items()):
        print(f"{count:>7}  {reason}")
    print("asked:")
    for check in CHECKS:
        print(f"{asked[check]:>7}  {check}")
    operators = len({v["name"].rpartition(":")[0] for v in verdicts})
    wrong = sum(bool(v["wrong"]) for v in verdicts)
    print(
        f"{len(verdicts)} cases of {operators} operators, {sum(asked.values())} checks, "
        f"{sum(left.values())} left out: {wrong} cases wrong"
    )
    return int(wrong > 0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, sweep, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("operators", nargs="*")
    parser.add_argument("--per-operator", type=int, default=40)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    from drawn.case import DRAWERS
    from drawn.every import names

    single = [o for o in given.operators if o.rpartition(":")[2].isdigit()]
    whole = [o for o in given.operators if o not in single]
    unknown = {*whole, *(o.rpartition(":")[0] for o in single)} - set(DRAWERS)
    if unknown:
        parser.error(f"nothing draws cases of {', '.join(sorted(unknown))}")
    chosen = single if single and not whole else names(given.per_operator, whole, given.first)
    verdicts = sweep([*chosen, *(single if whole else [])], given.processes)
    if given.json:
        given.json.write_text(json.dumps(verdicts, indent=1) + "\n", encoding="utf-8")
    return show(verdicts)


if __name__ == "__main__":
    sys.exit(main())
