"""Two ranks over a link of a known rate: sums against the α-β model, and what backward covers.

    sudo python benchmarks/ranks_link.py [--rate 200mbit] [--width 1024] [--batch 8192] [--steps 5]

The link is a pair of virtual devices between two network namespaces, shaped by a token bucket; the
machine is left as it was.  Takes root on Linux, iproute2, and MPICH with UCX, told to use TCP.

Prints for three sizes what a sum took and what the model predicts of it; then the median step of a
training of eight layers, by the ways in which sums can come forward beside backward: asked how far
they are between nodes (what `gradtool train` does), or begun only when backward is done; as a ratio
to the longer of computing and sending.
"""

from __future__ import annotations

import argparse
import json
import os
import stat
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

import gradtool as gt
from gradtool.ranks.launch import starter
from gradtool.ranks.mpi import Ranks
from gradtool.training.callbacks import Watcher
from gradtool.training.links import Link, parse_rate
from gradtool.training.reduction import Reducer

SPACES = ("gradtool0", "gradtool1")
HOSTS = ("10.99.0.1", "10.99.0.2")
SIZES = (1 << 20, 8 << 20, 32 << 20)  # bytes
LAYERS = 8
PATIENCE = 600  # seconds
WAYS = ("between nodes", "after backward")
SHELL = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
[ "$host" = %s ] && space=%s || space=%s
exec ip netns exec $space sh -c "$*"
"""


@contextmanager
def link(rate: str) -> Iterator[None]:
    """Two namespaces with a device each, of a rate."""

    def ip(*given: str) -> None:
        subprocess.run(["ip", *given], check=True)

    for space in SPACES:
        ip("netns", "add", space)
    try:
        ip("link", "add", "g0", "netns", SPACES[0], "type", "veth", "peer", "name", "g1",
           "netns", SPACES[1])  # fmt: skip
        for number, (space, host) in enumerate(zip(SPACES, HOSTS, strict=True)):
            ip("-n", space, "addr", "add", f"{host}/24", "dev", f"g{number}")
            for device in (f"g{number}", "lo"):
                ip("-n", space, "link", "set", device, "up")
            ip("netns", "exec", space, "tc", "qdisc", "add", "dev", f"g{number}", "root", "tbf",
               "rate", rate, "burst", "64kb", "latency", "50ms")  # fmt: skip
        time.sleep(1)  # until the devices have a carrier
        yield
    finally:
        for space in SPACES:
            ip("netns", "del", space)


def measured(group: Ranks, size: int) -> float:
    """Seconds of a sum of so many bytes, the median of five."""
    array, found = np.ones(size // 4, np.float32), []
    for _ in range(6):
        group.gather(np.array(0))
        start = time.perf_counter()
        group.wait(group.add(array))
        found.append(time.perf_counter() - start)
    return statistics.median(found[1:])


class Steps(Watcher):
    """Notes when steps end."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def stepped(self, *_: object) -> None:
        self.ends.append(time.perf_counter())

    def median(self) -> float:
        """Seconds of a step, those of the first two left out."""
        return statistics.median(np.diff(self.ends[1:]).tolist())


def network(width: int) -> ir.Model:
    """Layers of one width, with drawn weights."""
    rng = np.random.default_rng(0)
    weights = ", ".join(f"float[{width}, {width}] w{i}" for i in range(LAYERS))
    body = "".join(f"h{i} = MatMul (x{i}, w{i}) x{i + 1} = Tanh (h{i}) " for i in range(LAYERS))
    model = ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["" : 20]> net (float[batch, {width}] x0, {weights}) '
        f"=> (float[batch, {width}] x{LAYERS}) {{ {body} }}"
    )
    for value in list(model.graph.inputs)[1:]:
        model.graph.inputs.remove(value)
        drawn = rng.standard_normal((width, width), np.float32) / np.float32(width**0.5)
        value.const_value = ir.tensor(drawn, name=value.name)
        model.graph.register_initializer(value)
    return gt.load(model)


def stepped(group: Any, given: argparse.Namespace, *, alone: bool = False) -> float:
    """The median step of a training; alone, that of the share of one rank."""
    rng = np.random.default_rng(1)
    ranks = 1 if alone else group.size
    data = {"x0": rng.standard_normal((given.batch * ranks, given.width), np.float32)}
    watcher = Steps()
    with gt.Trainer(
        network(given.width), loss=f"sum:x{LAYERS}", optimizer="sgd", lr=1e-6, steps=given.steps,
        batch=given.batch * ranks, loss_scale=1, shuffle=False,
    ) as trainer:  # fmt: skip
        trainer.fit(data, watcher=watcher, **({} if alone else {"group": group}))
    return watcher.median()


def rank(given: argparse.Namespace) -> None:
    """What one rank does; the first prints what it found."""
    group = Ranks(timeout=600)
    if given.way == 1:
        Reducer.settled = _nothing  # type: ignore[method-assign]  # the other way
        Reducer.finish = _all_now  # type: ignore[method-assign]  # the other way
    found: dict[str, Any] = {"step": stepped(group, given)}
    if given.way == 0:
        found["alone"] = stepped(group, given, alone=True)
        group.gather(np.array(0))
        found["empty"] = measured(group, 4)
        found["sums"] = [measured(group, size) for size in SIZES]
        found["sending"] = measured(group, 4 * LAYERS * given.width**2)
    if group.rank == 0:
        sys.stdout.write(json.dumps(found) + "\n")
    group.close()


def _nothing(self: Reducer, name: str) -> None:
    del self, name


def _all_now(self: Reducer) -> None:
    self._begin()
    spans = [self._session.span(names) for names in self._buckets]
    for pending in [self._group.add(span) for span in spans]:
        self._group.wait(pending)


def main() -> None:
    """Shape a link, start two ranks over it, and print what they found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", default="200mbit")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--way", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way is not None:
        rank(given)
        return
    found = {}
    with tempfile.TemporaryDirectory() as folder, link(given.rate):
        shell = Path(folder, "shell")
        shell.write_text(SHELL % (HOSTS[0], *SPACES))
        shell.chmod(shell.stat().st_mode | stat.S_IXUSR)
        for way in WAYS:
            options = [f"--{n}={v}" for n, v in vars(given).items() if n != "way"]
            command = [
                "ip", "netns", "exec", SPACES[0], starter(2)[0], "-launcher", "ssh",
                "-launcher-exec", str(shell), "-hosts", ",".join(HOSTS), "-ppn", "1", "-n", "2",
                sys.executable, __file__, *options, f"--way={WAYS.index(way)}",
            ]  # fmt: skip
            told = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=PATIENCE,
                env={**os.environ, "UCX_TLS": "tcp,self", "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
            if told.returncode:
                sys.exit(told.stderr)
            found[way] = json.loads(told.stdout.splitlines()[-1])
    show(found, given)


def show(found: dict[str, Any], given: argparse.Namespace) -> None:
    """Print what was found."""
    told = found[WAYS[0]]
    model = Link(parse_rate(given.rate), told["empty"] / 2)
    print(f"link {given.rate}, latency {model.latency * 1e6:.0f} µs (half an empty sum)")
    print("sum of MiB   measured ms   predicted ms   predicted / measured")
    for size, seconds in zip(SIZES, told["sums"], strict=True):
        predicted = model.all_reduce(size, 2)
        print(f"{size >> 20:10} {seconds * 1e3:13.1f} {predicted * 1e3:14.1f}"
              f" {predicted / seconds:22.3f}")  # fmt: skip
    computing, sending = told["alone"], told["sending"]
    print(f"step: computing {computing * 1e3:.0f} ms, sending {sending * 1e3:.0f} ms")
    for way in WAYS:
        step = found[way]["step"]
        print(f"{way:16} {step * 1e3:6.0f} ms, {step / max(computing, sending):.2f} of the longer")


if __name__ == "__main__":
    main()
