"""What a step takes beyond parameters and gradients on native kernels, and in PyTorch eager.

    python benchmarks/native_memory.py [NAME…] [--share 0.5] [--repeat 5]

The networks are those of `stock_models` and `speed_models`.  MiB on one thread, each in a fresh
process, after a step that is not counted, the high-water mark of anonymous memory:

eager        a step of PyTorch, of five processes the middle one
live         what that has allocated at once: malloc maps each larger block and gives it back
checkpoints  a step of PyTorch with `torch.utils.checkpoint` around each block
keep         ours as it is, the loss and gradients returned as from PyTorch's: what is planned, and
             what is taken (0.8 of eager's at most)
reorder      the same in another order, nothing is computed again
share        ours by a plan that may take `--share` of eager's

Last are seconds of a step by that plan, and of one of PyTorch with checkpoints, in turns in one
process (0.9 at most).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAMES = ("ResNet-18", "U-Net", "GPT", "ViT")
COLUMNS = ("network", "eager", "live", "checkpoints", "keep", "reorder", "share", "seconds",
           "with checkpoints", "")  # fmt: skip
MIB = 2**20
PROCESSES = 5


# ------------------------------------------------------------------------------- children


def export(path: str, name: str) -> None:
    """Write a network."""
    import stock_models
    from speed_models import SUBJECTS

    stock_models.export(SUBJECTS[name], Path(path))


def eager(_: str, name: str) -> int:
    """The bytes that a step of PyTorch takes beyond parameters and gradients."""
    return _taken(*_torch(name, again=False))


def again(_: str, name: str) -> int:
    """The same with checkpoints."""
    return _taken(*_torch(name, again=True))


def native(path: str, name: str, how: str | int) -> list[int]:
    """What is planned for ours, and what a step takes: by a strategy, or within so many bytes."""
    from gradtool.exec import ort_memory

    step, planned = _ours(path, name, how)
    step()
    start = ort_memory.begin()
    step()
    return [planned, planned + (ort_memory.growth(start) or 0)]


def seconds(path: str, name: str, how: str | int, repeat: int) -> list[float]:
    """The least processor time of a step of ours, and of PyTorch with checkpoints."""
    steps = [_ours(path, name, how)[0], _torch(name, again=True)[0]]
    least = [float("inf")] * 2
    for _ in range(repeat + 1):
        for which, step in enumerate(steps):
            began = time.process_time()
            step()
            least[which] = min(least[which], time.process_time() - began)
    return least


def _taken(step: Callable[[], object], network: Any) -> int:
    """The growth of the process in a step, less gradients."""
    from gradtool.exec import ort_memory

    step()
    network.zero_grad(set_to_none=True)
    start = ort_memory.begin()
    step()
    return (ort_memory.growth(start) or 0) - _bytes(network)


def _torch(name: str, *, again: bool) -> tuple[Callable[[], object], Any]:
    """A step of PyTorch, and its network."""
    import torch
    from speed_models import SUBJECTS

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    subject = SUBJECTS[name]
    network = subject.network()
    network.again = again
    x, labels = torch.from_numpy(subject.input()), torch.from_numpy(subject.labels())

    def step() -> None:
        network.zero_grad(set_to_none=True)
        subject.loss(network, x, labels).backward()

    return step, network


def _bytes(network: Any) -> int:
    """The bytes of all gradients of a network, which are those of its parameters."""
    return sum(p.numel() * p.element_size() for p in network.parameters())


def _ours(path: str, name: str, how: str | int) -> tuple[Callable[[], object], int]:
    """A step of ours, and what is planned for it beyond parameters and gradients."""
    from speed_models import SUBJECTS

    import gradtool as gt

    subject = SUBJECTS[name]
    axis = f"@axis={subject.axis}" if subject.axis != 1 else ""
    model = gt.grad(gt.load(path), loss=f"ce:y{axis}", train_mode=True, only_loss=True).model
    both = 2 * _bytes(subject.network())
    if how != "keep":
        goal = how if isinstance(how, str) else gt.Budget(how + both)
        model = gt.recompute(model, goal, kernels="native").model
    session = gt.Session(model, kernels="native")
    batch = {"x": subject.input(), "labels": subject.labels()}
    planned = gt.plan(model, kernels="native").total - both
    return lambda: session.step(batch, copy=False), planned


CHILDREN: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (export, eager, again, native, seconds)
}


def child(what: str, *arguments: Any, live: bool = False) -> Any:
    """What a function of this file returns, in a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--child", json.dumps([what, arguments])]
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    mapped = {"MALLOC_MMAP_THRESHOLD_": "65536"} if live else {}
    env = {**os.environ, **one, **mapped}
    done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


# ---------------------------------------------------------------------------------- table


def row(path: str, name: str, share: float, repeat: int) -> str:
    """The figures of one network."""
    child("export", path, name)
    plain = _median("eager", path, name)
    live = child("eager", path, name, live=True)
    cells = [name, _mib(plain), _mib(live), _mib(_median("again", path, name))]
    room = int(share * plain)
    for how in ("keep", "reorder", room):
        planned, taken = child("native", path, name, how)
        cells.append(f"{_mib(planned)}, {_mib(taken)} ({taken / plain:.2f})")
    mine, theirs = child("seconds", path, name, room, repeat)
    cells += [f"{mine:.3f}", f"{theirs:.3f}", f"{mine / theirs:.2f}"]
    return "| " + " | ".join(cells) + " |"


def _median(what: str, path: str, name: str) -> int:
    """The bytes of the middle one of some processes: those of malloc differ by a tenth."""
    found: list[int] = sorted(child(what, path, name) for _ in range(PROCESSES))
    return found[PROCESSES // 2]


def _mib(number: int) -> str:
    return f"{number / MIB:.1f}"


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME")
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        what, arguments = json.loads(given.child)
        print(json.dumps(CHILDREN[what](*arguments)))
        return
    print("| " + " | ".join(COLUMNS) + " |")
    print("|---" + "|--:" * (len(COLUMNS) - 1) + "|")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.onnx")
        for name in given.names:
            print(row(path, name, given.share, given.repeat), flush=True)


if __name__ == "__main__":
    main()
