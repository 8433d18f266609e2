"""Gradients against five-point differences in float64, over all single-operator tests of ONNX.

    python benchmarks/gradcheck.py [OPERATOR…] [--processes 2] [--json FILE]
    python benchmarks/gradcheck.py --table [OPERATOR…] [--json FILE]

Takes every test of onnx's node suite with one node and a float input, at the opset it has. Prints
per operator how many gradients were built, agree, disagree or were refused, and how many of the
gradient graphs run in stock onnxruntime; then everything that is not so, with the reason.
`--table` sweeps the case table of our own tests instead.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections import Counter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
STATES = ("agree", "disagree", "refused", "broken", "constant")
# The state of the art, on fewer tests than these.
PEERS = "of 649 such tests at opset 18: onnx-ad 0.3.0 agrees on 507, onnxruntime-training on 264"


def suite(operators: list[str], processes: int, output: Path | None) -> int:
    """Sweep onnx's node suite."""
    import pool
    from suite import examine
    from suite_models import tests

    chosen = [n for n, t in tests().items() if not operators or t.op in operators]
    rows = []
    for name, row in pool.results(examine, chosen, processes):
        test = tests()[name]
        if row is None:
            rows.append({"name": name, "op": test.op, "state": "broken", "why": "the process died"})
        else:
            rows.append(dataclasses.asdict(row))
    rows.sort(key=lambda r: (r["op"], r["name"]))
    if output:
        output.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    _print_rows(rows)
    return int(any(r["state"] in ("disagree", "broken") for r in rows))


def _print_rows(rows: list[dict[str, Any]]) -> None:
    heads = "".join(f"{s:>10}" for s in STATES)
    print(f"{'operator':<48}{'tests':>6}{heads}{'worst':>10}{'ort':>10}")
    for op in sorted({r["op"] for r in rows}):
        _print_row(op, [r for r in rows if r["op"] == op])
    print()
    for row in rows:
        if row["state"] != "agree":
            print(f"{row['state']:<10}{row['name']}: {row['why'] or row.get('error')}")
    print()
    stock = [r.get("onnxruntime", "") for r in rows]
    for row, verdict in zip(rows, stock, strict=True):
        if verdict not in ("", "yes") and not verdict.startswith("absent"):
            print(f"onnxruntime: {row['name']}: {verdict}")
    print()
    _print_row("all", rows)
    present = [v for v in stock if v and not v.startswith("absent")]
    print(f"stock onnxruntime runs {present.count('yes')} of {len(present)} gradient graphs")
    own = sum("not what the standard" in v for v in stock)
    lacking = sum(v.startswith("absent") for v in stock) - own
    print(f"(it lacks the forward operator of {lacking}, and computes that of {own} otherwise)")
    counts = Counter(r["state"] for r in rows)
    compared = len(rows) - counts["constant"]
    rest = ", ".join(f"{counts[s]} {s}" for s in ("disagree", "refused", "broken"))
    print(f"of {compared} tests from floats to floats {counts['agree']} agree ({rest})")
    print(PEERS)


def _print_row(op: str, rows: list[dict[str, Any]]) -> None:
    counts = Counter(r["state"] for r in rows)
    cells = "".join(f"{counts[s]:>10}" for s in STATES)
    worst = max((r["error"] for r in rows if r["state"] == "agree"), default=0.0)
    stock = [r.get("onnxruntime", "") for r in rows]
    present = [v for v in stock if v and not v.startswith("absent")]
    runs = f"{present.count('yes')}/{len(present)}"
    print(f"{op:<48}{len(rows):>6}{cells}{worst:>10.0e}{runs:>10}")


def table(operators: list[str], output: Path | None) -> int:
    """Sweep the case table of our tests."""
    sys.path.insert(0, str(ROOT / "tests"))
    import cases
    from checkers import check_gradient

    from gradtool.graph.families import FAMILIES

    for family in FAMILIES:
        if find_spec(f"operators.{family}"):
            import_module(f"operators.{family}")
    rows: dict[str, dict[str, Any]] = {}
    for case in cases.CASES:
        if not case.gradient or (operators and case.op not in operators):
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
    if output:
        output.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(f"{len(rows)} operators, {total} cases, worst relative error {worst:.1e}")
    print(f"{total - failed} passed, {failed} failed")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("operators", nargs="*")
    parser.add_argument("--table", action="store_true", help="our own case table")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.table:
        return table(arguments.operators, arguments.json)
    return suite(arguments.operators, arguments.processes, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
