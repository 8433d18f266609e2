"""Gradients against five-point differences in float64, over the whole case table.

    python benchmarks/gradcheck.py [OPERATOR…] [--json FILE]

Prints, per operator, how many cases there are and the worst relative error; then the totals.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))


def main() -> int:
    import cases
    from checkers import check_gradient

    from gradtool.families import FAMILIES

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operators", nargs="*")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    for family in FAMILIES:
        if find_spec(f"operators.{family}"):
            import_module(f"operators.{family}")
    rows: dict[str, dict[str, Any]] = {}
    for case in cases.CASES:
        if not case.gradient or (arguments.operators and case.op not in arguments.operators):
            continue
        row = rows.setdefault(case.op, {"cases": 0, "worst": 0.0, "failed": []})
        row["cases"] += 1
        try:
            with np.errstate(all="ignore"):
                row["worst"] = max(row["worst"], check_gradient(case))
        except AssertionError as error:
            row["failed"].append(f"{case.id}: {str(error).splitlines()[0]}")
    for op, row in sorted(rows.items()):
        print(f"{op:<28}{row['cases']:>6}{row['worst']:>12.1e}  {'; '.join(row['failed'])}")
    failed = sum(len(r["failed"]) for r in rows.values())
    total = sum(r["cases"] for r in rows.values())
    worst = max((r["worst"] for r in rows.values()), default=0.0)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(f"{len(rows)} operators, {total} cases, worst relative error {worst:.1e}")
    print(f"{total - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
