"""Mutants of models, each given to commands within limits: what they are made of, what is found.

Own mutations rather than hypothesis or Atheris: a mutant is named by two numbers and made again
from them on any machine, it needs no instrumented interpreter, and a command runs in a fork, so
that one that crashes, hangs or takes all memory is a finding and not the end.
"""

from __future__ import annotations

import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import bad_bodies
import bad_sizes
import cases
import numpy as np
import onnx
import onnx_ir as ir
from checkers import build
from conftest import TINY, tiny_weights
from conftest import build as written
from graphs import parse
from limited import Ended, ended, warm
from mutation import mutant
from shared import SMALL

from gradtool import io
from gradtool.graph.families import FAMILIES
from gradtool.graph.specs import spec_of

ROOT = Path(__file__).resolve().parents[1]
MOST_BYTES = 100_000  # of a file that is mutated: larger ones are slow and not stranger
COMMANDS = {
    "grad": ("grad", "m.onnx", "-o", "o.onnx", "--force"),
    "run": ("run", "m.onnx"),
    "report": ("report", "m.onnx"),
    "mirror": ("mirror", "m.onnx", "-o", "o.onnx", "--force"),
    "mirror --report": ("mirror", "m.onnx", "--report"),
    "recompute": ("recompute", "m.onnx", "--budget", "60%", "-o", "o.onnx", "--force"),
    "compare": ("compare", "m.onnx", "m.onnx"),
    "ops": ("ops", "m.onnx"),
}
OFTEN = ("grad", "run")  # each mutant; of the others one, in turn


@dataclass(frozen=True)
class Seed:
    """A model to mutate, and what its commands are told beside its name."""

    name: str
    model: onnx.ModelProto
    flags: tuple[str, ...] = ()


@dataclass
class Tally:
    """What was run, and each kind of defect with the mutants that have it."""

    mutants: int = 0
    runs: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    defects: dict[str, list[str]] = field(default_factory=dict)
    refusals: dict[str, list[str]] = field(default_factory=dict)
    slowest: float = 0.0
    largest: int = 0

    def add(self, name: str, found: Ended, held: Callable[[], int] = int) -> None:
        """Count one run of a command on the mutant of that name; `held` as in `Ended.defect`."""
        self.runs += 1
        self.codes[found.code] += 1
        self.slowest = max(self.slowest, found.seconds)
        self.largest = max(self.largest, found.bytes)
        defect = found.defect(held)
        if "fails on it (" in found.err and found.code == 2:
            self.refusals.setdefault(kind_of("", found.err), []).append(name)
        if defect:
            self.defects.setdefault(kind_of(defect, found.err), []).append(name)

    def closing(self) -> str:
        """The last line of a run."""
        codes = ", ".join(f"{count} ended {code}" for code, count in sorted(self.codes.items()))
        kinds = len(self.defects)
        return (
            f"{self.mutants} mutants, {self.runs} runs ({codes}), slowest {self.slowest:.1f} s, "
            f"largest {self.largest / 2**20:.0f} MiB, "
            f"{sum(map(len, self.refusals.values()))} refused by a node: "
            f"{sum(map(len, self.defects.values()))} defects of {kinds} kinds"
        )


def kind_of(defect: str, err: str) -> str:
    """What mutants of one defect share: the place in the code, else the words."""
    err = err.partition("The above exception")[0]  # the first one, of which others come
    frames = re.findall(r'File "[^"]*/(gradtool/[^"]+)", line \d+, in (\w+)', err)
    named = re.findall(r"^(?:\w+\.)*(\w+(?:Error|Exception|Interrupt))\b", err, re.MULTILINE)
    if frames and named:
        return f"{named[0]} in {frames[-1][1]} of {frames[-1][0]}"
    return re.sub(r"'[^']*'|\"[^\"]*\"|-?\d[\d.]*", "_", defect)[:160]


def seeds(*, zoo: bool = True) -> list[Seed]:
    """The samples, the operator cases, small models, and files that are broken already."""
    found = [*_samples(), *_cases(), *_wholes(), *_broken()]
    return found + (list(_small()) if zoo else [])


def _samples() -> Iterator[Seed]:
    yield Seed("tiny", written(TINY.replace("batch", "2"), **tiny_weights()))
    for path in sorted((ROOT / "samples").glob("*.onnx")):
        yield Seed(path.stem, _sized(onnx.load(path), path.with_suffix(".npz")))


def _small() -> Iterator[Seed]:
    for path in sorted(SMALL.glob("*/model.onnx")):
        if path.stat().st_size <= MOST_BYTES:
            yield Seed(path.parent.name, _sized(onnx.load(path), path.parent / "inputs.npz"))


def _sized(model: onnx.ModelProto, inputs: Path) -> onnx.ModelProto:
    """The model with the sizes of these inputs in place of its symbols."""
    sizes: dict[str, int] = {}
    with np.load(inputs) as arrays:
        for value in model.graph.input:
            if value.name in arrays:
                dims = zip(value.type.tensor_type.shape.dim, arrays[value.name].shape, strict=True)
                sizes.update({d.dim_param: size for d, size in dims if d.dim_param})
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    return model


def _cases() -> Iterator[Seed]:
    for family in FAMILIES:
        if find_spec(f"operators.{family}"):
            import_module(f"operators.{family}")
    for case in cases.CASES:
        model = ir.to_proto(build(case, np.float32)[0])
        yield Seed(case.id, model, ("--loss", "sum"))


def _wholes() -> Iterator[Seed]:
    for case in cases.WHOLE:
        yield Seed(case.name, ir.to_proto(parse(case.text, case.weights)), ("--loss", "sum"))


def _broken() -> Iterator[Seed]:
    for name, make in {**bad_bodies.VALID, **bad_bodies.REFUSED, **bad_sizes.LARGE}.items():
        yield Seed(name, make())


def named(number: int, seed: int, pool: list[Seed]) -> tuple[Seed, onnx.ModelProto]:
    """Mutant `number` of a run with `seed`, and what it was made of."""
    draw = random.Random(f"{seed}/{number}")  # noqa: S311 - no secret
    source = draw.choice(pool)
    return source, mutant(source.model, draw)


def fuzz(
    pool: list[Seed], seconds: float, *, seed: int = 0, start: int = 0, step: int = 1
) -> Iterator[Tally]:
    """Run mutants `start`, `start + step`, … until the time is over; the tally after each."""
    tally = Tally()
    others = [command for command in COMMANDS if command not in OFTEN]
    with tempfile.TemporaryDirectory(prefix="gradtool-fuzz-") as text:
        folder = Path(text)
        prepare(folder)
        end = time.monotonic() + seconds
        number = start
        while time.monotonic() < end:
            source, model = named(number, seed, pool)
            try:
                data = model.SerializeToString()
            except (ValueError, UnicodeError):
                data = b""
            (folder / "m.onnx").write_bytes(data)
            for command in (*OFTEN, others[number % len(others)]):
                found = attempt(command, source.flags, folder)
                tally.add(
                    f"{seed}/{number} {command} of {source.name}",
                    found,
                    partial(held, folder / "m.onnx"),
                )
            tally.mutants += 1
            number += step
            yield tally


def held(path: Path) -> int:
    """Bytes of the inputs and results of all nodes of a file, where they are known."""
    graph = io.load(path).graph
    values = [*graph.inputs, *(v for node in graph for v in node.outputs)]
    return sum(spec.bytes for v in values if (spec := spec_of(v)) is not None)


def prepare(folder: Path) -> None:
    """Import all that commands import, by running them once."""
    (folder / "m.onnx").write_bytes(next(_samples()).model.SerializeToString())
    warm(COMMANDS.values(), folder)


def attempt(command: str, flags: tuple[str, ...], folder: Path) -> Ended:
    """Run a command on the mutant in the folder."""
    given = COMMANDS[command]
    return ended(("-v", *given) if command == "ops" else ("-v", *given, *flags), folder)
