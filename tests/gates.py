"""Repositories to be checked, and verdicts that no model was planned for."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
from conftest import build

from gradtool.check import Case, Grown, Judged, Metrics, Outcome
from gradtool.check.verdicts import Change
from gradtool.comparison.metrics import Operator, Tensor
from gradtool.reports.gate import GateRun

CONFIG = """\
[check]
fail-on = ["peak:0%"]

[[case]]
model = "net.onnx"
dims = { batch = 4 }
plan = "mirror"
"""
HOSTILE = (
    "<script>alert(1)</script>",
    "\x1b[31mred\x1b[0m\x07",
    "[bold red]x[/] [link=http://example.com]y[/link]",
    "a|b`c`",
    "one\r\ntwo\n::error::three",
    "##[error]x",
    "\u202egnp.exe\u200f",
    "]]>&amp;%0A%25",
    "\ud800\ufffe",
    "x" * 10_000,
)


def net(width=16, layers=4, activation="Tanh", batch="batch"):
    """`layers` times MatMul, an activation and Sin over rows of `width`."""
    lines = []
    for n in range(layers):
        source = f"s{n - 1}" if n else "x"
        lines.append(f"m{n} = MatMul ({source}, w{n}) t{n} = {activation} (m{n}) s{n} = Sin (t{n})")
    lines.append(f"loss = ReduceMean <keepdims = 0> (s{layers - 1})")
    body = f"net (float[{batch}, {width}] x) => (float loss) {{ {' '.join(lines)} }}"
    weights = {f"w{n}": np.ones((width, width), np.float32) / width for n in range(layers)}
    return build(body, **weights)


def write(path: Path, **shape) -> Path:
    """Write the model of `net`."""
    path.write_bytes(net(**shape).SerializeToString())
    return path


def git(folder: Path, *arguments: str) -> str:
    """Run git as somebody, whoever runs the tests."""
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(
        ["git", *who, *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def case(name="net", **fields) -> Case:
    """A case of a model that is not there."""
    given = {"model": "net.onnx", "folder": Path(), "group": name}
    return Case(name=name, **(given | fields))


def metrics(tensors=None, operators=None, left_out=0, kept=None, **values) -> Metrics:
    """Metrics of which only the values named are known."""
    named = {name.replace("_", "-"): value for name, value in values.items()}
    return Metrics(named, tensors or {}, operators or {}, left_out, kept or {})


def tensor(size=64, *, op="Relu", region="activations", shape=(4,), dtype="float32", held=None,
           again=0, also=()) -> Tensor:  # fmt: skip
    """A tensor that is held at the peak."""
    return Tensor(op, region, shape, dtype, size, size if held is None else held, again, also)


def operator(nodes=1, again=0, flops=0, extra=0, held=0) -> Operator:
    """An operator."""
    return Operator(nodes, again, flops, extra, held)


def failing(name="net", tensor_name="h", why="32 → 64", error="") -> Judged:
    """A case that grew, or that could not be planned."""
    if error:
        return Judged(case(name), "error", None, reasons=(error,), exit_code=2)
    change = Change("peak", 1 << 20, 1 << 21, ("fail-on peak:1%",))
    grown = (
        Grown(tensor_name, "tensor", 0, 1 << 20, why),
        Grown("Relu", "operator", 64, 1 << 20, "1 → 2 nodes"),
    )
    return Judged(case(name), "grew", metrics(peak=1 << 21), (change,), (), grown, 1)


def passing(name="fine") -> Judged:
    """A case that is as it was."""
    return Judged(case(name), "ok", metrics(peak=64), (Change("peak", 64, 64),))


def gate(*judged: Judged, base: str = "") -> GateRun:
    """A run of the gate with these verdicts."""
    return GateRun(judged, "gradtool.toml", base)


def dies_at_four(checked: Case, *, run: bool) -> Outcome:
    """What measures cases until one of batch 4 comes, which takes the process with it."""
    if checked.dims["batch"] == 4:
        os._exit(1)
    return Outcome(None, "lives" if not run else "")
