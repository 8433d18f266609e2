"""Commands on mutants of models: none may end in a bug, in a crash, or beyond its limits.

    python benchmarks/fuzz.py [--minutes 10] [--seed 0] [--processes 2] [--refusals]
    python benchmarks/fuzz.py --show SEED/NUMBER [--save FILE]

Mutates the samples, the cases of the operator tests, the small models of the zoo where they are,
and files that are broken already; runs `grad`, `run` and one more command on each, in a process
with limits of time (20 s) and memory (1 GiB beyond what it has). Prints each kind of defect with
the mutants that show it, by which `--show` makes one again and shows the traceback.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
SHOWN = 5


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--refusals", action="store_true", help="also list complaints of nodes")
    parser.add_argument("--show", metavar="SEED/NUMBER")
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    if given.show:
        return show(given.show, given.save)
    return sweep(given.minutes * 60, given.seed, given.processes, refusals=given.refusals)


def sweep(seconds: float, seed: int, processes: int, *, refusals: bool) -> int:
    """Fuzz in several processes; the exit code is 1 where something was found."""
    from fuzzing import Tally

    context = multiprocessing.get_context("spawn")
    with context.Pool(processes) as pool:
        jobs = [(seconds, seed, start, processes) for start in range(processes)]
        parts = pool.map(_part, jobs)
    total = Tally()
    for part in parts:
        total.mutants += part.mutants
        total.runs += part.runs
        total.codes += part.codes
        total.slowest = max(total.slowest, part.slowest)
        total.largest = max(total.largest, part.largest)
        for found, more in ((total.defects, part.defects), (total.refusals, part.refusals)):
            for kind, names in more.items():
                found.setdefault(kind, []).extend(names)
    if refusals:
        print("refused by a node:")
        _list(total.refusals)
    _list(total.defects)
    print(total.closing())
    return 1 if total.defects else 0


def _list(found: dict[str, list[str]]) -> None:
    for kind, names in sorted(found.items(), key=lambda pair: -len(pair[1])):
        print(f"{len(names):4} x {kind}")
        for name in names[:SHOWN]:
            print(f"       {name}")


def _part(job: tuple[float, int, int, int]) -> Any:
    from fuzzing import Tally, fuzz, seeds

    seconds, seed, start, step = job
    tally, said = Tally(), time.monotonic()
    for tally in fuzz(seeds(), seconds, seed=seed, start=start, step=step):
        if start == 0 and time.monotonic() - said > 30:
            said = time.monotonic()
            sys.stderr.write(f"{tally.closing()}\n")
    return tally


def show(name: str, save: Path | None) -> int:
    """Make a mutant again, and run every command on it."""
    import onnx
    from fuzzing import COMMANDS, attempt, named, prepare, seeds

    seed, number = map(int, name.split("/"))
    source, model = named(number, seed, seeds())
    if save is not None:
        save.write_bytes(model.SerializeToString())
    print(f"of {source.name}")
    print(onnx.printer.to_text(model)[:4000])
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        prepare(folder)
        (folder / "m.onnx").write_bytes(model.SerializeToString())
        for command in COMMANDS:
            found = attempt(command, source.flags, folder)
            print(f"{command}: ended {found.code}, {found.seconds:.1f} s, {found.bytes >> 20} MiB")
            print(found.err)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(main())
