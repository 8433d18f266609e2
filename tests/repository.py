"""A git repository of models, and gradtool in it, apart from the machine's own settings."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from conftest import build

_LEFT_OUT = {"CI", "NO_COLOR", "COLUMNS", "GITHUB_STEP_SUMMARY", "GITHUB_ACTIONS"}
_GIT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_AUTHOR_DATE": "2020-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2020-01-01T00:00:00Z",
}


def environment(**more: str) -> dict[str, str]:
    """What a process here sees: no settings of the machine's git, no continuous integration."""
    return {k: v for k, v in os.environ.items() if k not in _LEFT_OUT} | _GIT | more


@dataclass(frozen=True)
class Repository:
    """A git repository whose folder is `path`."""

    path: Path

    @classmethod
    def made(cls, path: Path) -> Repository:
        """An empty one."""
        path.mkdir()
        repository = cls(path)
        repository.git("init", "--quiet", "--initial-branch=main")
        return repository

    def git(self, *arguments: str) -> str:
        """What git prints; it has to succeed."""
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.path,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"git {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def commit(self, message: str) -> str:
        """Commit everything; the new commit."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)
        return self.git("rev-parse", "HEAD")

    def gradtool(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """One command of gradtool in a process of its own."""
        return subprocess.run(
            [sys.executable, "-m", "gradtool", *arguments],
            cwd=self.path,
            env=environment(**more),
            capture_output=True,
            encoding="utf-8",
            check=False,
        )

    def write(self, name: str, model: onnx.ModelProto) -> None:
        """Put a model into the repository."""
        target = self.path / name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(model.SerializeToString())


ACTIVATIONS = {
    "wave": "t{n} = Tanh (h{n}) a{n} = Sin (t{n})",
    "noise": "t{n} = RandomNormalLike (h{n}) m{n} = Mul (h{n}, t{n}) a{n} = Sin (m{n})",
}


def network(width: int = 64, activation: str = "wave", layers: int = 3) -> onnx.ModelProto:
    """`layers` products, `width` wide, each with an activation after it.

    A `wave` is cheap to compute again; `noise` is drawn, so it would be another one then.
    """
    lines, weights = [], {}
    rng = np.random.default_rng(0)
    for n in range(layers):
        rows = width if n else 16
        weights[f"w{n}"] = rng.standard_normal((rows, width)).astype(np.float32) / 8
        lines.append(f"h{n} = MatMul ({f'a{n - 1}' if n else 'x'}, w{n})")
        lines.append(ACTIVATIONS[activation].format(n=n))
    lines.append(f"loss = ReduceMean <keepdims = 0> (a{layers - 1})")
    return build(f"net (float[batch, 16] x) => (float loss) {{ {' '.join(lines)} }}", **weights)
