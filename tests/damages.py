"""Damaged files of runs, kits, baselines and plans, and what the commands that read them do.

Each trial is a copy of a folder in which one file is torn, changed, swapped for that of another
run, or replaced by a link, a pipe, a folder or nothing.  Links lead to decoys inside the folder.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from limited import Ended, ended
from trainings import examples, proto

TRAIN = ("train", "net.onnx", "--data", "data.npz", "--batch", "8", "--lr", "0.1", "--ema", "0.9",
         "--optimizer", "adam", "--steps", "12", "--checkpoint-every", "4", "--keep", "3",
         "--memory", "1MiB", "--kernels", "numpy")  # fmt: skip
RESUME = (*TRAIN, "--run", "run", "-o", "out.onnx", "--resume")
KIT = ("kit", "net.onnx", "--optimizer", "adam")
PLAN = ("run", "g.onnx", "--batch", "8", "--plan", "plan.json", "--kernels", "numpy", "--seed", "0",
        "--save-grads", "out.npz")  # fmt: skip
CONFIG = """[[case]]
name = "net"
model = "net.onnx"
batch = 8
plan = "keep"
"""
Rng = np.random.Generator


def torn(path: Path, rng: Rng) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.integers(max(len(data), 1))])


def changed(path: Path, rng: Rng) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
    path.write_bytes(data)


def swapped(path: Path, rng: Rng) -> None:
    """With another file of its kind, of another training where there is one."""
    root = next(p for p in path.parents if (p / "decoy").exists())
    other = root / "other" / path.relative_to(root)
    near = sorted(p for p in path.parent.glob(f"*{path.suffix}") if p != path and p.is_file())
    found = other if other.exists() else near[rng.integers(len(near))] if near else root / "decoy"
    path.write_bytes(found.read_bytes())


def linked(path: Path, _rng: Rng) -> None:
    root = next(p for p in path.parents if (p / "decoy").exists())
    path.unlink()
    path.symlink_to(root / "decoy")


def hard_linked(path: Path, _rng: Rng) -> None:
    root = next(p for p in path.parents if (p / "decoy").exists())
    path.unlink()
    path.hardlink_to(root / "decoy")


def piped(path: Path, _rng: Rng) -> None:
    path.unlink()
    os.mkfifo(path)


def folded(path: Path, _rng: Rng) -> None:
    path.unlink()
    path.mkdir()


def emptied(path: Path, _rng: Rng) -> None:
    path.write_bytes(b"")


def lost(path: Path, _rng: Rng) -> None:
    path.unlink()


WAYS: Sequence[Callable[[Path, Rng], None]] = (
    torn, changed, swapped, linked, hard_linked, piped, folded, emptied, lost,
)  # fmt: skip


@dataclass(frozen=True)
class Subject:
    """Files that a command reads, by glob, and what it writes."""

    files: str
    command: tuple[str, ...]
    writes: tuple[str, ...] = ()
    without: tuple[Callable[[Path, Rng], None], ...] = ()  # ways that are no damage of it


# Numbers of a kit, a baseline or a plan are the user's, and a plan may come from a pipe; that a
# baseline is not there is what `check` tells.
SUBJECTS = {
    "run": Subject("run/*", RESUME, ("out.onnx", "out.ema.onnx", "run/metrics.jsonl")),
    "kit": Subject(
        "kit/**/*", ("kit", "merge", "kit", "kit/state", "-o", "out.onnx"), ("out.onnx",),
        (changed,),
    ),
    "state": Subject(
        "kit/*.safetensors", ("kit", "merge", "kit", "kit/state.safetensors", "-o", "out.onnx"),
        ("out.onnx",), (changed,),
    ),
    "baseline": Subject("gradtool-baseline/*", ("check", "--jobs", "1"), (), (changed, lost)),
    "plan": Subject("plan.json", PLAN, ("out.npz",), (changed, piped)),
}  # fmt: skip


def made(folder: Path) -> Path:
    """A folder with all of it; `other` beside each file has that of another training."""
    folder.mkdir(parents=True)
    onnx.save(proto(), folder / "net.onnx")
    np.savez(folder / "data.npz", **examples(50))
    (folder / "gradtool.toml").write_text(CONFIG)
    decoy = folder / "decoy"
    decoy.write_text("MINE\n" * 2000)
    commands = [
        (*TRAIN, "--run", "run", "-o", "a.onnx"),
        (*TRAIN, "--run", "other/run", "-o", "b.onnx", "--seed", "1"),
        (*KIT, "-o", "kit"), ("check", "--update"),
        ("grad", "net.onnx", "-o", "g.onnx"),
        ("recompute", "g.onnx", "--batch", "8", "-o", "plan.json", "--budget", "min",
         "--kernels", "numpy"),
    ]  # fmt: skip
    for command in commands:
        done = ended(command, folder)
        assert done.code == 0, done.err
    for run in ("run", "other/run"):
        for path in (folder / run).glob("step-00000012*"):
            path.unlink()  # as if it had been killed
    return folder


def trials(whole: Path, place: Path, count: int, seed: int = 0) -> Iterator[tuple[str, str]]:
    """So many damaged files: what was done, and `refused`, `right`, or what is wrong."""
    good = {name: _expected(whole, place, subject) for name, subject in SUBJECTS.items()}
    every = [
        (name, path.relative_to(whole), way)
        for name, subject in SUBJECTS.items()
        for path in sorted(whole.glob(subject.files)) if path.is_file()
        for way in WAYS if way not in subject.without
    ]  # fmt: skip
    rng = np.random.default_rng(seed)
    for number in range(count):
        name, path, way = every[int(rng.permutation(len(every))[0])] if count < len(every) else (
            every[number % len(every)]
        )  # fmt: skip
        _copied(whole, place)
        way(place / path, rng)
        found = ended(SUBJECTS[name].command, place)
        yield f"{path} {way.__name__}", _judged(found, place, SUBJECTS[name], good[name])


def _expected(whole: Path, place: Path, subject: Subject) -> dict[str, bytes]:
    _copied(whole, place)
    found = ended(subject.command, place)
    assert found.code == 0, found.err
    return {name: (place / name).read_bytes() for name in subject.writes} | {"": found.out.encode()}


def _copied(whole: Path, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(whole, place)


def _judged(found: Ended, place: Path, subject: Subject, good: dict[str, bytes]) -> str:
    if (place / "decoy").read_text() != "MINE\n" * 2000:
        return "the target of a link was written"
    if found.defect() or "Traceback" in found.err:
        return found.defect() or "a traceback"
    last = (found.err.strip().splitlines() or [""])[-1]
    told = last.startswith("gradtool: ") or (subject.command[0] == "check" and found.out)
    if found.code == 2 and told:  # check says what is wrong with a case in its table
        left = [path for path in subject.writes[:1] if (place / path).exists()]
        return f"refused, but there is {left[0]}" if left else "refused"
    if found.code:
        return f"exit {found.code}: {last}"
    anew = "a new one begins" in found.err  # the journal alone
    wrong = [
        name for name, data in good.items() if name and not (anew and name.endswith(".jsonl"))
        and (place / name).read_bytes() != data
    ]  # fmt: skip
    if not subject.writes and found.out.encode() != good[""]:
        wrong.append("what it prints")
    return f"other bytes: {', '.join(wrong)}" if wrong else "right"
