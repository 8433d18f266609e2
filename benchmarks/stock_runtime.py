"""Everything that gradtool writes, in stock onnxruntime: at its default options and bare.

    python benchmarks/stock_runtime.py [KIND…] [--only GLOB] [--slice I/N] [--rows FILE]
                                       [--exports DIR] [--processes 1]

KIND: samples, small and full (the zoo; weights that are absent are drawn), graphs (300 at random),
cases (every operator case), transposed (the same between Transposes), whole, exports (files that
`torch_exports.py DIR` made).  Of each: grad, grad --optimizer adamw, grad --split, mirror,
recompute, and a graph in which all of forward runs twice, these with barriers and without; with
open sizes and with given ones.  What comes out must agree with our executor.

With `--rows` results are appended to a file, and subjects that it holds are not run again.
A subject whose forward graph onnxruntime does not run, or runs otherwise, is left out, and said.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import warnings
from collections import Counter
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pool
from stock_subjects import Left, subjects

from gradtool.errors import ModelError, NotDifferentiable, UsageError

EXPORTS = Path(tempfile.gettempdir()) / "gradtool-exports"
SECONDS = 900.0


def examine(job: tuple[str, str]) -> dict[str, Any]:
    """The rows of one subject."""
    from stock_files import drawn, rows

    warnings.simplefilter("ignore")
    name, exports = job
    found: dict[str, Any] = {"name": name, "files": [], "left": "", "broken": ""}
    with np.errstate(all="ignore"), tempfile.TemporaryDirectory() as folder:
        try:
            subject = subjects([name.split("/")[0]], Path(exports))[name]()
            subject = replace(subject, feeds=drawn(subject))
            why = _forward(subject, Path(folder))
            if why:
                raise Left(why)  # noqa: TRY301
            for row in rows(subject, Path(folder)):
                found["files"].append([row.file, row.level, row.problem])
        except Left as left:
            found["left"] = str(left)
        except (NotDifferentiable, ModelError, UsageError) as refusal:
            found["left"] = f"gradtool refuses it: {str(refusal)[:200]}"
        except Exception as error:  # noqa: BLE001 - whatever went wrong is the row
            found["broken"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return found


def _forward(subject: Any, folder: Path) -> str:
    """Why stock onnxruntime cannot be asked: what it makes of the forward model."""
    from stock_files import LEVELS, _worst, run

    import gradtool as gt
    from gradtool.exec.feeds import sizes
    from gradtool.program.bind_dims import bound

    taken = {value.name for value in subject.forward.graph.inputs}
    feeds = {n: a for n, a in subject.feeds.items() if n in taken}  # labels come with the loss
    model = bound(subject.forward, sizes(subject.forward, feeds))
    ours = gt.run(model, feeds).outputs
    gt.save(model, folder / "forward.onnx", force=True)
    for level, options in LEVELS.items():
        try:
            theirs = run(folder / "forward.onnx", feeds, options)
        except Exception as error:  # noqa: BLE001
            said = " ".join(str(error).split())[:160]
            return f"onnxruntime ({level}) does not run forward: {said}"
        numbers = {n: a for n, a in ours.items() if a.dtype.kind in "fiu"}
        if not _worst(theirs, numbers)[0] <= 1e-2:
            return f"onnxruntime ({level}) computes forward otherwise"
    return ""


def main() -> int:
    """Parse, run, print; the exit code says whether a row failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--only", default="*")
    parser.add_argument("--slice", default="0/1")
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--exports", type=Path, default=EXPORTS)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--quiet", action="store_true", help="only what failed")
    arguments = parser.parse_args()
    names = list(subjects(arguments.kinds, arguments.exports))
    names = [n for n in names if fnmatchcase(n, arguments.only)]
    index, parts = map(int, arguments.slice.split("/"))
    names = names[index::parts]
    known = _known(arguments.rows)
    jobs = [(n, str(arguments.exports)) for n in names if n not in known]
    for (name, _), result in pool.results(examine, jobs, arguments.processes, SECONDS):
        row = result or {"name": name, "files": [], "left": "", "broken": "the process died"}
        known[name] = row
        if arguments.rows:
            with arguments.rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        _show(row, quiet=arguments.quiet)
    return _close([known[n] for n in names if n in known])


def _known(path: Path | None) -> dict[str, Any]:
    if path is None or not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row["name"]: row for row in rows}


def _show(row: dict[str, Any], *, quiet: bool) -> None:
    failed = [f for f in row["files"] if f[2]]
    if row["broken"]:
        print(f"{row['name']}: BROKEN {row['broken']}", flush=True)
    elif not failed and not quiet:
        said = f"left out: {row['left']}" if row["left"] else f"{len(row['files'])} runs"
        print(f"{row['name']}: {said}", flush=True)
    for file, level, problem in failed:
        print(f"{row['name']}: {file}, {level}: {problem}", flush=True)


def _close(rows: list[dict[str, Any]]) -> int:
    """The closing lines."""
    reasons = Counter(r["left"].split(":")[0] for r in rows if r["left"])
    for reason, count in sorted(reasons.items()):
        print(f"{count} left out: {reason}")
    runs = [f for r in rows for f in r["files"]]
    failed = sum(bool(f[2]) for f in runs)
    broken = sum(bool(r["broken"]) for r in rows)
    ran = sum(not r["left"] and not r["broken"] for r in rows)
    print(f"{ran} models, {len(runs)} runs: {len(runs) - failed} agree, {failed} do not; "
          f"{broken} models broken, {sum(reasons.values())} left out")  # fmt: skip
    return int(failed + broken > 0)


if __name__ == "__main__":
    sys.exit(main())
