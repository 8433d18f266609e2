"""Files that somebody cuts while a command reads them, in a process of its own.

Every look of the command at a file is counted: at its size, when it is opened or mapped, and when
a piece of it is read.  After one of them the file is cut.
"""

from __future__ import annotations

import builtins
import io
import mmap
import os
import shutil
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
from conftest import build
from damages import KIT, PLAN, RESUME, TRAIN
from damages import made as with_runs
from limited import Ended, ended, warm
from trainings import examples

from gradtool.io import safetensors

PIECE = 1 << 16  # bytes that are read at once
SIZES = {"nothing": lambda _: 0, "half": lambda size: size // 2, "all but one": lambda n: n - 1}
WIDE = """net (float[batch, 6] x) => (float[batch, 3] y) {
    h = MatMul (x, w1)
    s = Add (h, b1)
    r = Tanh (s)
    codes = DequantizeLinear (q, scale)
    c = MatMul (r, codes)
    m = MatMul (c, w2)
    y = Add (m, b2)
}"""
BATCH = ("--batch", "8", "--kernels", "numpy")
GRADS = ("--seed", "0", "--save-grads", "out.npz")
OTHER = {"net.onnx": "wide.onnx", "1MiB": "8MiB", "12": "5"}
MAPPED = ("--batch", "8", "--kernels", "native")
WIDE_TRAIN = tuple(OTHER.get(word, word) for word in TRAIN)
LORA = ("--lora", "2", "--lora-target", "w*", "--lora-adapter")
NATIVE_TRAIN = tuple("native" if word == "numpy" else word for word in WIDE_TRAIN)


@dataclass(frozen=True)
class Subject:
    """A file that a command reads, by glob, and what it writes."""

    file: str
    command: tuple[str, ...]
    writes: tuple[str, ...] = ()


def _training(data: str) -> tuple[str, ...]:
    return tuple(data if word == "data.npz" else word for word in TRAIN)


SUBJECTS = {
    "grad beside": Subject("wide.data", ("grad", "wide.onnx", "-o", "out.onnx"), ("out.onnx",)),
    "grad elsewhere": Subject(
        "wide.data", ("grad", "wide.onnx", "-o", "away/out.onnx"), ("away/out.onnx",)
    ),
    "grad inline": Subject(
        "wide.data", ("grad", "wide.onnx", "-o", "out.onnx", "--external-data", "never"),
        ("out.onnx",),
    ),
    "run": Subject("wide.data", ("run", "wide.onnx", *BATCH, *GRADS), ("out.npz",)),
    "run mapped": Subject("wide.data", ("run", "wide.onnx", *MAPPED, *GRADS), ("out.npz",)),
    "train lora mapped": Subject(
        "wide.data", (*NATIVE_TRAIN, *LORA, "-o", "out.onnx"),
        ("out.onnx",),
    ),
    "train": Subject("wide.data", (*WIDE_TRAIN, "-o", "out.onnx"), ("out.onnx",)),
    "train lora": Subject(
        "wide.data", (*WIDE_TRAIN, *LORA, "-o", "out.onnx"), ("out.onnx",)
    ),
    "mirror": Subject("wide.data", ("mirror", "wide.onnx", "-o", "out.onnx"), ("out.onnx",)),
    "report": Subject("wide.data", ("report", "wide.onnx", *BATCH)),
    "kit": Subject("wide.data", ("kit", "wide.onnx", "--optimizer", "adam", "-o", "own"), ("own",)),
    "merge": Subject(
        "wide.data", ("kit", "merge", "wide", "wide/state.safetensors", "-o", "out.onnx"),
        ("out.onnx",),
    ),
    "merge state": Subject(
        "wide/state.safetensors",
        ("kit", "merge", "wide", "wide/state.safetensors", "-o", "out.onnx"), ("out.onnx",),
    ),
    "merge folder": Subject(
        "wide/state/*w1.bin", ("kit", "merge", "wide", "wide/state", "-o", "out.onnx"),
        ("out.onnx",),
    ),
    "model": Subject("inline.onnx", ("grad", "inline.onnx", "-o", "out.onnx"), ("out.onnx",)),
    "model run": Subject("inline.onnx", ("run", "inline.onnx", *BATCH, *GRADS), ("out.npz",)),
    "replaced": Subject("old.onnx", ("grad", "inline.onnx", "-o", "old.onnx")),
    "data file": Subject("old.onnx", ("grad", "wide.onnx", "-o", "old.onnx")),
    "resume tensors": Subject("run/step-00000008.safetensors", RESUME, ("out.onnx",)),
    "resume": Subject("run/step-00000008.json", RESUME, ("out.onnx",)),
    "journal": Subject("run/metrics.jsonl", RESUME, ("out.onnx",)),
    "plan": Subject("plan.json", PLAN, ("out.npz",)),
    **{
        f"data {suffix}": Subject(
            f"data.{suffix}", (*_training(f"data.{suffix}"), "-o", "out.onnx"), ("out.onnx",)
        )
        for suffix in ("npz", "safetensors")
    },
    "inputs": Subject(
        "data.npz", ("run", "net.onnx", "--inputs", "data.npz", "--kernels", "numpy", *GRADS[2:]),
        ("out.npz",),
    ),
    "data npy": Subject("folder/x.npy", (*_training("folder"), "-o", "out.onnx"), ("out.onnx",)),
}  # fmt: skip


def made(folder: Path) -> Path:
    """A folder with every file that is read."""
    with_runs(folder)
    data = examples(50)
    safetensors.save(folder / "data.safetensors", data)
    for place in ("folder", "away"):
        (folder / place).mkdir()
    for name, array in data.items():
        np.save(folder / "folder" / f"{name}.npy", array)
    add_wide(folder)
    warm([("kit", "wide.onnx", *KIT[2:], "-o", "wide")], folder)
    return folder


def add_wide(folder: Path) -> Path:
    """Put a model there whose weights are larger than a piece, within and beside."""
    rng = np.random.default_rng(2)
    wide = {
        "w1": rng.standard_normal((6, 8192)).astype(np.float32), "b1": np.zeros(8192, np.float32),
        "q": rng.integers(-9, 9, (8192, 12)).astype(np.int8), "scale": np.float32(0.01),
        "w2": rng.standard_normal((12, 3)).astype(np.float32), "b2": np.zeros(3, np.float32),
    }  # fmt: skip
    proto = build(WIDE, **wide)
    onnx.save(proto, folder / "inline.onnx")
    onnx.save(
        proto, folder / "wide.onnx", save_as_external_data=True, location="wide.data",
        size_threshold=0,
    )  # fmt: skip
    warm([("grad", "inline.onnx", "-o", "old.onnx"), ("run", "wide.onnx", *BATCH)], folder)
    return folder


@dataclass(frozen=True)
class Trial:
    """A command whose file was cut after its look of a number."""

    name: str
    number: int
    size: str
    said: str  # `refused`, `right`, or what is wrong

    def __str__(self) -> str:
        return f"{self.name} cut to {self.size} after look {self.number}: {self.said}"


class Cutting:
    """A command on a copy of a folder, of which one file is cut."""

    def __init__(self, whole: Path, place: Path, name: str) -> None:
        self.whole, self.place, self.name, self.subject = whole, place, name, SUBJECTS[name]
        self._copy()
        done, self.looks = self._ended(0, 0)
        assert done.code == 0, done.err
        self.good = self._written()

    def trial(self, number: int, size: str) -> Trial:
        """Cut the file after a look; `refused`, `right`, or what is wrong."""
        self._copy()
        done, _ = self._ended(number, SIZES[size](self._file.stat().st_size))
        return Trial(self.name, number, size, self._judged(done))

    @property
    def _file(self) -> Path:
        (found,) = self.place.glob(self.subject.file)
        return found

    def _copy(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.whole, self.place)

    def _ended(self, number: int, size: int) -> tuple[Ended, int]:
        return cut(self.subject.command, self.place, self._file, number, size)

    def _written(self) -> dict[str, bytes]:
        places = [self.place / name for name in self.subject.writes]
        files = [f for p in places for f in (sorted(p.rglob("*")) if p.is_dir() else [p])]
        return {str(f.relative_to(self.place)): f.read_bytes() for f in files if f.is_file()}

    def _judged(self, done: Ended) -> str:
        if done.defect() or "Traceback" in done.err:
            return done.defect() or "a traceback"
        last = (done.err.strip().splitlines() or [""])[-1]
        if done.code == 0:
            return "right" if self._written() == self.good else "other bytes"
        if done.code != 2 or not last.startswith("gradtool: "):
            return f"exit {done.code}: {last}"
        torn = [name for name, data in self._written().items() if data != self.good[name]]
        if torn:
            return f"refused, but there is {torn[0]}"
        return "refused" if self._file.name in last else f"does not name the file: {last}"


def cut(
    command: Sequence[str], folder: Path, file: Path, number: int, size: int
) -> tuple[Ended, int]:
    """Run a command, whose file is cut after its look of a number; how it ended, and the looks."""
    with mmap.mmap(-1, 8) as shared:
        parent, status = os.getpid(), file.stat()
        target = status.st_dev, status.st_ino

        def looked(at: os.stat_result) -> None:
            if os.getpid() == parent or (at.st_dev, at.st_ino) != target:
                return
            (count,) = struct.unpack("q", shared[:])
            shared[:] = struct.pack("q", count + 1)
            if count + 1 == number:
                os.truncate(file, size)

        with hooked(looked):
            found = ended(command, folder)
        return found, struct.unpack("q", shared[:])[0]


@contextmanager
def hooked(looked: Callable[[os.stat_result], None]) -> Iterator[None]:
    """Tell of each look at a file, after it, and read short pieces."""
    fstat, mapping = os.fstat, mmap.mmap

    def of_path(call: Callable[..., Any]) -> Callable[..., Any]:
        def told(*arguments: Any, **options: Any) -> Any:
            found = call(*arguments, **options)
            looked(fstat(found) if isinstance(found, int) else found)
            return found

        return told

    def of_descriptor(call: Callable[..., Any]) -> Callable[..., Any]:
        def told(descriptor: int, *arguments: Any, **options: Any) -> Any:
            found = call(descriptor, *arguments, **options)
            looked(fstat(descriptor))
            return found

        return told

    def mapped(descriptor: int, *arguments: Any, **options: Any) -> mmap.mmap:
        made = mapping(descriptor, *arguments, **options)
        if descriptor >= 0:
            looked(fstat(descriptor))
        return made

    def preadv(descriptor: int, views: Sequence[Any], *arguments: Any) -> int:
        return os_preadv(descriptor, [memoryview(views[0])[:PIECE]], *arguments)

    os_preadv, opened = os.preadv, _opener(looked)
    opening, status = of_path(os.open), of_path(os.stat)
    with (
        patch.multiple(
            os, open=opening, stat=status, fstat=of_path(os.fstat), preadv=of_descriptor(preadv)
        ),
        patch.object(os, "supports_dir_fd", {*os.supports_dir_fd, opening, status}),
        patch.object(os, "supports_follow_symlinks", {*os.supports_follow_symlinks, status}),
        patch.object(mmap, "mmap", mapped),
        patch.object(io, "open", opened), patch.object(builtins, "open", opened),
    ):  # fmt: skip
        yield


def _opener(looked: Callable[[os.stat_result], None]) -> Callable[..., Any]:
    """An `open` of which each file that is read tells when it is opened and after each piece."""
    real, fstat = io.open, os.fstat

    class Raw(io.FileIO):
        def readinto(self, view: Any) -> int:
            count = super().readinto(memoryview(view)[:PIECE])
            looked(fstat(self.fileno()))
            return count

        def readall(self) -> bytes:
            return b"".join(iter(lambda: self.read(PIECE), b""))

    def made(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if set(mode) & set("wxa+") or options.get("opener"):
            return real(file, mode, *arguments, **options)
        buffered = io.BufferedReader(Raw(file, closefd=options.pop("closefd", True)))
        looked(fstat(buffered.fileno()))
        if "b" in mode:
            return buffered
        options.pop("buffering", None)
        return io.TextIOWrapper(buffered, *arguments[1:], **options)

    return made
