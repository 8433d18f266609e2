"""What stock onnxruntime takes of what gradtool plans: three exports of PyTorch, before and after.

    python benchmarks/stock.py [--before REVISION] [--only NAME] [--strategy min-cut]

ResNet-18, a U-Net and a GPT (`stock_models.py`) are exported raw, with a seed.  K keeps everything,
M is `mirror`, R is `recompute --strategy`, these two with barriers, and R- is R without them.  MiB
beside weights and inputs, on one thread, each in a fresh process:

planned   by gradtool, for its own executor
ours      what that takes: the high-water mark of its arena, and the most outside of it
default   onnxruntime at its default options: the high-water mark of the first run → after four
pattern   the same with `enable_mem_pattern = False`
printed   the same at the options that the command prints
live      what is allocated at once, at the options that the command prints
live *    the same at default options with `enable_mem_pattern = False`
torch     eager, and beside R with checkpoints around its blocks: what is allocated at once

What is allocated at once is the high-water mark without an arena, where malloc maps each larger
block on its own and gives it back.  `--before` adds a row by the gradtool of a revision to each.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
LOSS = {"ResNet-18": "ce:y", "U-Net": "ce:y@axis=1", "GPT": "ce:y"}
KINDS = {"K": False, "M": True, "R": True, "R-": False}  # and whether they have barriers
COLUMNS = ("planned", "ours", "default", "pattern", "printed", "live", "live *", "torch")
RUNS = 4
NO_PATTERN = {"enable_mem_pattern": False}
LIVE = {"enable_cpu_mem_arena": False}
MAPPED = {"MALLOC_MMAP_THRESHOLD_": "65536"}


# ------------------------------------------------------------------------------- children


def export(folder: str, name: str) -> None:
    """Write the model of a subject."""
    import stock_models

    stock_models.export(stock_models.SUBJECTS[name], Path(folder) / f"{name}.onnx")


def make(folder: str, name: str, strategy: str) -> dict[str, Any]:
    """Write the files of a subject; says what is planned, and which options are printed."""
    import onnx_ir as ir

    import gradtool as gt
    from gradtool.planning.plan import ALWAYS_LIVE
    from gradtool.workloads import ort_options

    model = gt.load(Path(folder) / f"{name}.onnx")
    training = gt.grad(model, loss=LOSS[name], train_mode=name != "GPT")
    again = gt.recompute(training, strategy)
    rows = {}
    for kind, barrier in KINDS.items():
        graph = {"K": training, "M": gt.mirror(training)}.get(kind, again)
        path = Path(folder) / f"{name}.{kind}.onnx"
        gt.save(graph, path, force=True, barrier=barrier)
        plan, file = gt.plan(graph), ir.load(path)
        given = sum(b.bytes for b in plan.buffers if b.region in ALWAYS_LIVE)
        printed = ort_options.needed_options(file) if ort_options.how_to_load(file) else {}
        rows[kind] = {"path": str(path), "given": given, "planned": plan.total - given,
                      "printed": printed}  # fmt: skip
    return rows


def ours(path: str) -> int:
    """What our executor takes, weights and inputs included."""
    import gradtool as gt

    found = gt.run(gt.load(path), measure=True, copy=False).measurement
    return 0 if found is None else found.peak


def stock(path: str, options: dict[str, Any]) -> list[int]:
    """What stock onnxruntime has taken after the first run, and after the last."""
    import onnx

    from gradtool.exec import ort_memory
    from gradtool.exec.ort import WARM_UP
    from gradtool.workloads.ort_options import session

    options = {"intra_op_num_threads": 1, **options}
    opened = session(path, options)
    rng = np.random.default_rng(0)
    feeds = {i.name: rng.standard_normal(i.shape, np.float32) if "float" in i.type
             else rng.integers(0, 2, i.shape) for i in opened.get_inputs()}  # fmt: skip
    warm = onnx.parser.parse_model(WARM_UP).SerializeToString()
    session(warm, options).run(None, {"x": np.ones((64, 64), np.float32)})
    start = ort_memory.begin()
    taken: list[int] = []
    results: list[Any] = []
    for _ in range(RUNS):
        results.clear()
        results += opened.run(None, feeds)
        taken.append(ort_memory.growth(start) or 0)
    return [taken[0], taken[-1]]


def eager(name: str, *, again: bool) -> int:
    """What PyTorch has allocated at once, in eager mode or with checkpoints."""
    import stock_models
    import torch

    from gradtool.exec import ort_memory

    torch.set_num_threads(1)
    subject = stock_models.SUBJECTS[name]
    network = subject.network()
    network.again = again
    x, labels = torch.from_numpy(subject.input()), torch.from_numpy(subject.labels())
    network(x[:1]).sum().backward()  # what libraries allocate once and keep
    network.zero_grad(set_to_none=True)
    start = ort_memory.begin()
    subject.loss(network, x, labels).backward()
    return ort_memory.growth(start) or 0


CHILDREN: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (export, make, ours, stock, eager)
}


def child(code: Path, what: str, *arguments: Any, live: bool = False, **options: Any) -> Any:
    """What a function of this file returns in a process of its own, by the gradtool in `code`."""
    env = {
        **os.environ,
        "PYTHONPATH": str(code),
        "OMP_NUM_THREADS": "1",
        **(MAPPED if live else {}),
    }
    command = [
        sys.executable,
        "-W",
        "ignore",
        __file__,
        "--child",
        json.dumps([what, arguments, options]),
    ]
    done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


# ---------------------------------------------------------------------------------- table


def measured(code: Path, row: dict[str, Any]) -> list[str]:
    """The columns of a file but for the last."""
    path, printed = row["path"], row["printed"]
    runs = [child(code, "stock", path, options) for options in ({}, NO_PATTERN, printed)]
    live = [child(code, "stock", path, {**o, **LIVE}, live=True)[0] for o in (printed, NO_PATTERN)]
    figures = [row["planned"], child(code, "ours", path) - row["given"]]
    spans = [f"{_mib(first)}→{_mib(last)}" for first, last in runs]
    shares = [f"{_mib(b)} ({b / row['planned']:.2f}×)" for b in live]
    return [*map(_mib, figures), *spans, *shares]


def _mib(number: int) -> str:
    return f"{number / 2**20:.0f}"


def checkout(revision: str, folder: Path) -> Path:
    """The package as a revision has it."""
    git = ["git", "-C", str(ROOT), "archive", revision, "gradtool"]
    packed = subprocess.run(git, check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", metavar="REVISION")
    parser.add_argument("--only", choices=LOSS)
    parser.add_argument("--strategy", default="min-cut")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        what, given, options = json.loads(arguments.child)
        print(json.dumps(CHILDREN[what](*given, **options)))
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        codes = {"after": ROOT}
        if arguments.before:
            codes = {"before": checkout(arguments.before, folder / "before"), **codes}
        print("| model | file | | " + " | ".join(COLUMNS) + " |")
        print("|---" * (3 + len(COLUMNS)) + "|")
        for name in [arguments.only] if arguments.only else LOSS:
            child(ROOT, "export", place, name)
            torch = {
                kind: _mib(child(ROOT, "eager", name, again=kind == "R", live=True))
                for kind in "KR"
            }
            for when, code in codes.items():
                rows = child(code, "make", place, name, arguments.strategy)
                for kind, row in rows.items():
                    cells = [*measured(code, row), torch.get(kind, "") if when == "after" else ""]
                    print(f"| {name} | {kind} | {when} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
