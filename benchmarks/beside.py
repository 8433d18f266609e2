"""What steps take beside their arenas, by operator, and how long they take: on a device or here.

    python benchmarks/beside.py [DIR] [NAME…] [--device cuda] [--batch N] [--repeat N]

DIR holds a folder per model with `model.onnx`; weights that are absent are drawn.  A row says
what is planned, where the last byte that a step changed lies, the most that was held beside the
arena and where, and seconds.  `beside` is to be 1 % of the plan and 256 KiB at most.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import gradtool as gt
from gradtool.api import read_inputs
from gradtool.exec.device import open_device
from gradtool.exec.executor import Executor
from gradtool.exec.measure import measure
from gradtool.exec.memory_meter import beside
from gradtool.exec.run import require
from gradtool.graph.specs import Spec
from gradtool.planning.plan import Plan

ROOT = Path(__file__).resolve().parents[1]
MIB = 1 << 20
SMALL = 256 << 10


def drawn(plan: Plan) -> Callable[[str], np.ndarray[Any, Any]]:
    """Parameters of a plan: positive numbers about 1 for vectors, small ones for matrices."""
    specs = {d.name: d.spec for d in plan.program.values}

    def parameter(name: str) -> np.ndarray[Any, Any]:
        spec = specs[name]
        assert isinstance(spec, Spec)  # noqa: S101 - a parameter has a shape
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        values = rng.standard_normal(spec.shape, np.float32) * np.float32(0.02)
        return np.asarray(values + (len(spec.shape) < 2), spec.dtype)

    return parameter


def row(path: Path, device: str, batch: int | None, repeat: int) -> str:
    """One model: what its step takes, and where."""
    training = gt.grad(gt.load(path, **({} if batch is None else {"batch": batch})))
    opened = open_device(device)
    plan = gt.plan(training, kernels=require("numpy", opened))
    executor = Executor(plan, opened, drawn(plan))
    for name, array in read_inputs(training.model, "random").items():
        executor.set_input(name, array)
    with np.errstate(all="ignore"):
        found = measure(executor, repeat)
        most: dict[str, int] = {}
        with beside(executor.device) as meter:
            for step, call in zip(plan.program.steps, executor.calls, strict=True):
                meter.restart()
                before = meter.held
                call()
                most[step.op] = max(most.get(step.op, 0), meter.most - before)
    large = sorted(((b, op) for op, b in most.items() if b > SMALL), reverse=True)
    where = ", ".join(f"{op} {b / MIB:.1f}" for b, op in large[:6])
    ok = found.outside <= found.planned // 100 + SMALL and found.high_water <= found.planned
    return (
        f"{'ok  ' if ok else 'MORE'} planned {found.planned / MIB:8.1f} MiB  "
        f"last byte {found.high_water / MIB:8.1f}  beside {found.outside / MIB:7.1f}  "
        f"retained {found.retained / MIB:5.1f}  {found.seconds * 1e3:8.1f} ms  {where}"
    )


def main() -> int:
    """Parse, run, print; the exit code says whether a row failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    zoo = ROOT.parent / "shared" / "zoo" / "full"
    parser.add_argument("zoo", type=Path, nargs="?", default=zoo)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    bad = 0
    for path in sorted(arguments.zoo.glob("*/model.onnx")):
        name = path.parent.name
        if arguments.names and name not in arguments.names:
            continue
        try:
            said = row(path, arguments.device, arguments.batch, arguments.repeat)
        except Exception as error:  # noqa: BLE001 - whatever went wrong is the row
            said = f"FAILED {type(error).__name__}: {str(error)[:160]}"
        bad += not said.startswith("ok")
        print(f"{name:<16} {said}", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
