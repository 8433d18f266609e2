"""Commands whose files have something else in their place: links, pipes, folders, other names.

A scene is a few commands one after the other in a folder and a home.  It is played once, and what
is there before and after each command is kept.  Then any file or folder that a command writes, or
finds where an earlier one wrote it, can be planted, and the command be given again.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from conftest import build

SECONDS = 60
MINE = b"mine\n" * 200


def _model(folder: Path) -> None:
    rng = np.random.default_rng(0)
    body = """m (float[batch, 3] x) => (float[batch, 2] y) {
        t = MatMul (x, w) r = Relu (t) y = MatMul (r, v)
    }"""
    weights = {name: rng.standard_normal(shape, np.float32) for name, shape in SHAPES.items()}
    onnx.save(build(body, **weights), folder / "m.onnx")
    np.savez(folder / "d.npz", x=rng.standard_normal((16, 3), np.float32), labels=np.arange(16) % 2)


SHAPES = {"w": (3, 4), "v": (4, 2)}
TOML = '[check]\nfail-on = ["peak:0%"]\n[[case]]\nmodel = "m.onnx"\nbatch = 2\n'


def _repository(folder: Path) -> None:
    _model(folder)
    (folder / ".git").mkdir()
    shutil.copy(folder / "m.onnx", folder / "n.onnx")
    (folder / "gradtool.toml").write_text(TOML + TOML.replace("m.onnx", "n.onnx").split("\n", 2)[2])


def _named(folder: Path) -> None:
    _model(folder)
    (folder / "pyproject.toml").write_text("[project]\n")


TRAIN = "train m.onnx --data d.npz --batch 4 --checkpoint-every 2 --loss ce"
SCENES: Mapping[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "grad": (_model, ("grad m.onnx", "grad m.onnx --force", "report")),
    "halves": (_model, ("grad m.onnx --split --external-data always --force",) * 2),
    "mirror": (_model, ("mirror m.onnx --batch 2 --external-data always --force",) * 2),
    "recompute": (_model, ("recompute m.onnx --batch 2 --strategy sqrt --force",) * 2),
    "check": (
        _repository,
        ("check --allow-new -j1", "check --update -j1", "check -j1", "check --list"),
    ),
    "init": (_model, ("init --dim batch=2", "init --dim batch=2 --force", "check")),
    "pyproject": (_named, ("init --dim batch=2", "init --dim batch=2 --force")),
    "train": (
        _model,
        (
            f"{TRAIN} --steps 4 --ema 0.9",
            f"{TRAIN} --steps 8 --ema 0.9 --resume --force",
            "report m.train",
            f"{TRAIN} --steps 2 --ema 0.9 --force",
        ),
    ),
    "memory": (_model, (f"{TRAIN} --steps 2 --memory 1MiB --force",) * 2),
    "lora": (_model, (f"{TRAIN} --steps 2 --lora 1 --lora-adapter --force",) * 2),
    "kit": (
        _model,
        ("kit m.onnx --batch 2", "kit m.onnx --force", "kit merge m.kit m.kit/state --force"),
    ),
}  # fmt: skip


@dataclass
class Stage:
    """A folder to work in, a home, and what nothing may touch, `away` from both."""

    base: Path
    run: Callable[[list[str]], int]
    kept: dict[tuple[str, int], list[str]] = field(default_factory=dict)

    @property
    def work(self) -> Path:
        return self.base / "work"

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def away(self) -> Path:
        return self.base / "away"

    def play(self, scene: str) -> None:
        """Give the commands of a scene; keep what is there before each, and the paths after it."""
        prepare, commands = SCENES[scene]
        for place in (self.work, self.home):
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
        prepare(self.work)
        given = set(self._paths())
        for number, command in enumerate(commands):
            for place in (self.work, self.home):
                shutil.copytree(place, self._copy(scene, number, place), symlinks=True)
            code = self.give(command)
            assert code == 0, f"{command}: exit {code}"
            self.kept[scene, number] = sorted(set(self._paths()) - given)

    def restore(self, scene: str, number: int) -> None:
        """Lay out what was there before a command."""
        if (scene, 0) not in self.kept:
            self.play(scene)
        shutil.rmtree(self.away, ignore_errors=True)
        self.away.mkdir()
        for place in (self.work, self.home):
            shutil.rmtree(place)
            shutil.copytree(self._copy(scene, number, place), place, symlinks=True)

    def give(self, command: str) -> int:
        """The exit code of a command, which may not wait for anything."""
        with chdir(self.work), _no_longer_than(SECONDS):
            return self.run(command.split())

    def plant(self, path: str, kind: str) -> None:
        """Put something else in the place of what is there, or will be; a decoy has the same."""
        place, decoy = self.base / path, self.away / "decoy"
        place.parent.mkdir(parents=True, exist_ok=True)
        _decoy(place, decoy, kind)
        match kind:
            case "link" | "folder link":
                place.symlink_to(os.path.relpath(decoy, place.parent))
            case "dangling":
                place.symlink_to(self.away / "new")
            case "hard link":
                place.hardlink_to(decoy)
            case "pipe":
                os.mkfifo(place)
            case "folder":
                place.mkdir()
                (place / "file").write_bytes(MINE)

    def apart(self) -> dict[str, bytes | None]:
        """What is away, by path: bytes of files."""
        return {
            str(path.relative_to(self.away)): path.read_bytes() if path.is_file() else None
            for path in sorted(self.away.rglob("*"))
        }

    def _copy(self, scene: str, number: int, place: Path) -> Path:
        return self.base / "kept" / f"{scene}-{number}-{place.name}"

    def _paths(self) -> Iterator[str]:
        for place in (self.work, self.home):
            yield from (str(each.relative_to(self.base)) for each in place.rglob("*"))


def _decoy(place: Path, decoy: Path, kind: str) -> None:
    """Move what is there away, as what a link leads to, or make something for it to lead to."""
    is_folder = place.is_dir()
    if kind in ("link", "hard link", "folder link") and is_folder == (kind == "folder link"):
        if place.exists():
            place.rename(decoy)
            return
    elif is_folder:
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    if kind == "folder link":
        decoy.mkdir()
        (decoy / "file").write_bytes(MINE)
    else:
        decoy.write_bytes(MINE)


@contextmanager
def _no_longer_than(seconds: int) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TimeoutError(f"more than {seconds} s: it waits")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
