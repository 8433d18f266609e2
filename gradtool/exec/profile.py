"""The seconds that each node of a training step takes, measured, and the file that holds them."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from gradtool.errors import UsageError
from gradtool.exec import inputs as sources
from gradtool.exec.device import open_device
from gradtool.exec.executor import Executor
from gradtool.exec.run import parameters_of
from gradtool.io.documents import is_number, is_text, read_document, write_document
from gradtool.plans import Workload, sized

SCHEMA_VERSION = 1
REPEATS = 5
_LONGEST = 1e6  # seconds of one node that a file may claim


@dataclass(frozen=True, slots=True)
class Timed:
    """The operator of a node and the seconds of one run of it."""

    op: str
    seconds: float


@dataclass(frozen=True)
class Profile:
    """The time of every node that runs, by its name; the median over `repeats` steps."""

    nodes: Mapping[str, Timed]
    repeats: int


def profile(
    work: Workload, arrays: Mapping[str, np.ndarray[Any, Any]], repeats: int = REPEATS
) -> Profile:
    """Time each node of a training graph on the CPU, everything kept, after one step to warm up.

    Raises:
        MissingData: a weight or an input is absent.
    """
    model = sized(work.model, work.dims)
    executor = Executor(work.kept, open_device("cpu"), parameters_of(model))
    for name, array in arrays.items():
        executor.set_input(name, array)
    taken: list[list[float]] = [[] for _ in executor.calls]
    with np.errstate(all="ignore"):
        executor.step()
        for _ in range(max(repeats, 1)):
            for call, seconds in zip(executor.calls, taken, strict=True):
                start = time.perf_counter()
                call()
                seconds.append(time.perf_counter() - start)
    nodes = {
        step.name: Timed(step.op, statistics.median(seconds))
        for step, seconds in zip(work.program.steps, taken, strict=True)
    }
    return Profile(MappingProxyType(nodes), max(repeats, 1))


def at_random(work: Workload, repeats: int = REPEATS) -> Profile:
    """Time each node on random inputs.

    Raises:
        MissingData: a weight is absent.
    """
    model = sized(work.model, work.dims)
    return profile(work, sources.random(model, 0), repeats)


def save(found: Profile, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a profile as JSON.

    Raises:
        UsageError: the file exists without `force`, or cannot be written.
    """
    nodes = {name: {"op": t.op, "seconds": t.seconds} for name, t in found.nodes.items()}
    document = {"schema_version": SCHEMA_VERSION, "repeats": found.repeats, "nodes": nodes}
    write_document(document, path, force=force)


def load(path: str | os.PathLike[str]) -> Profile:
    """Read a profile.

    Raises:
        UsageError: the file cannot be read or is no profile.
    """
    document = read_document(path, SCHEMA_VERSION)
    nodes, repeats = document.get("nodes"), document.get("repeats", 1)
    if not isinstance(nodes, dict) or not is_number(repeats):
        raise UsageError(f"{path}: is no profile: write one with gradtool run --profile FILE")
    timed = {name: _timed(path, name, found) for name, found in nodes.items()}
    return Profile(MappingProxyType(timed), int(repeats))


def _timed(path: str | os.PathLike[str], name: str, found: Any) -> Timed:
    if isinstance(found, dict):
        op, seconds = found.get("op"), found.get("seconds")
        if is_text(op) and is_number(seconds) and 0 <= seconds <= _LONGEST:
            return Timed(op, float(seconds))
    raise UsageError(f"{path}: node {name!r} needs an op and its seconds, a number from 0 on")
