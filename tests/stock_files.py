"""What gradtool writes of a model, every way, in stock onnxruntime: at its defaults, and bare.

`rows` writes the files of a subject (whole graphs, steps, halves, plans, with barriers and without,
sizes open and given), runs each at both levels, and compares what comes out with our executor.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import clones
import numpy as np
import onnx_ir as ir

import gradtool as gt
from gradtool import api
from gradtool.exec.differences import results
from gradtool.exec.feeds import defaults, sizes
from gradtool.exec.ort_agreement import TOLERANCE
from gradtool.graph.stages import is_clone
from gradtool.passes.ort_allocator import control_edges
from gradtool.passes.widen import widen
from gradtool.program.bind_dims import bound

Arrays = Mapping[str, np.ndarray[Any, Any]]
LEVELS = {"default": {}, "bare": {"graph_optimization_level": "ORT_DISABLE_ALL"}}
JITTER, DRAWS = 1e-6, 4
VARIANTS = ("grad", "adamw", "split", "mirror", "recompute", "clones")
RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
          "RandomUniformLike")  # fmt: skip
BODIES = ("If", "Loop", "Scan", "SequenceMap")


@dataclass(frozen=True)
class Subject:
    """A forward model, how it is differentiated, and inputs (drawn for `dims` where absent)."""

    name: str
    forward: ir.Model
    options: Mapping[str, Any] = field(default_factory=dict)
    feeds: Arrays = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """What became of one file at one level; `problem` is empty where it is as it should be."""

    file: str
    level: str
    problem: str = ""


def rows(subject: Subject, folder: Path, variants: tuple[str, ...] = VARIANTS) -> Iterator[Row]:
    """Every file of a subject at every level."""
    feeds = subject.feeds or drawn(subject)
    known = bound(subject.forward, sizes(subject.forward, feeds))
    models = {"": known}
    if any(isinstance(d, ir.SymbolicDim) for v in subject.forward.graph.inputs for d in v.shape):
        models[" symbolic"] = subject.forward
    for suffix, model in models.items():
        yield from _rows(subject, model, known, feeds, folder, variants, suffix)


def drawn(subject: Subject) -> Arrays:
    """Inputs of a subject's training graph."""
    model = gt.grad(bound(subject.forward, subject.dims), **subject.options).model
    return api.read_inputs(model, subject.feeds or "random")


def _rows(
    subject: Subject,
    model: ir.Model,
    known: ir.Model,
    feeds: Arrays,
    folder: Path,
    variants: tuple[str, ...],
    suffix: str,
) -> Iterator[Row]:
    dims = sizes(model, feeds)
    options = dict(subject.options)
    training = gt.grad(model, **options)
    gradients = Expected.of(gt.grad(known, **options).model, feeds)
    for variant in variants:
        made, expected = training, gradients
        if variant == "split":
            made = gt.grad(model, **options, loss_seed=True)
        if variant == "adamw":
            if not any(v in model.graph.initializers for v in training.gradients):
                continue
            made = gt.grad(model, **options, optimizer=variant)
            expected = Expected.of(gt.grad(known, **options, optimizer=variant).model, feeds)
        for name, files, barrier in _files(made, variant, dims):
            paths = [folder / f"{i}.onnx" for i in range(len(files))]
            # What is done to large results is done to those of any size, in small graphs, too.
            with patch.object(control_edges, "LARGE", 1):
                for path, file in zip(paths, files, strict=True):
                    gt.save(file, path, force=True, barrier=barrier)
            for level, how in LEVELS.items():
                yield Row(name + suffix, level, _problem(paths, expected, how))


def _files(
    training: gt.TrainingGraph, variant: str, dims: Mapping[str, int]
) -> Iterator[tuple[str, list[ir.Model], bool]]:
    """Names of files, the models in them, and whether these have barriers."""
    if variant in ("grad", "adamw"):
        yield variant, [training.model], False
    elif variant == "split":
        halves = gt.split(training)
        yield variant, [halves.forward, halves.backward], False
    else:
        model = _planned(training, variant, dims)
        yield variant, [model], False
        if any(map(is_clone, model.graph)):
            yield f"{variant} --barrier", [model], True


def _planned(training: gt.TrainingGraph, variant: str, dims: Mapping[str, int]) -> ir.Model:
    if variant == "mirror":
        return gt.mirror(training, dims=dims).model
    if variant == "recompute":
        return gt.recompute(training, "sqrt", dims=dims).model
    return clones.recompute(training.model, _forward_values(training.model))


def _forward_values(model: ir.Model) -> set[str]:
    """Everything that forward computes and that may run twice."""
    return {
        v.name or ""
        for node in model.graph
        if node.metadata_props.get("gradtool.stage") not in ("backward", "update")
        and node.op_type not in (*RANDOM, *BODIES, "Dropout", "Constant")
        for v in node.outputs
    }


@dataclass(frozen=True)
class Expected:
    """What our executor makes of a training graph; `exact` is the same in float64."""

    model: ir.Model
    feeds: Arrays
    arrays: Arrays

    @classmethod
    def of(cls, model: ir.Model, feeds: Arrays) -> Expected:
        """Run it once."""
        feeds = {**defaults(model), **feeds}
        return cls(model, feeds, _arrays(model, gt.run(model, feeds)))

    def exact(self) -> Arrays:
        """The same in float64."""
        wide = widen(self.model)
        feeds = {n: a.astype(np.float64) if _is_float(a) else a for n, a in self.feeds.items()}
        return _arrays(wide, gt.run(wide, feeds))

    def beside(self, seed: int) -> Arrays:
        """The same of inputs that differ in their last digits, as sums in another order do.

        Where a Relu or a maximum is near its kink, its gradient is another one there.
        """
        rng = np.random.default_rng(seed)

        def moved(array: Any) -> Any:
            if not _is_float(array):
                return array
            return (array * (1 + JITTER * rng.standard_normal(array.shape))).astype(array.dtype)

        feeds = {n: moved(a) for n, a in self.feeds.items()}
        return _arrays(self.model, gt.run(self.model, feeds))


def _is_float(array: Any) -> bool:
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def _arrays(model: ir.Model, result: gt.Result) -> Arrays:
    """What is compared, by the names of outputs."""
    names = json.loads(model.metadata_props.get("gradtool.gradients", "{}"))
    found = {names.get(n, n): a for n, a in results(result)[1].items()}
    return {n: a for n, a in found.items() if a.dtype.kind in "fiu"}


def _problem(paths: list[Path], expected: Expected, options: Mapping[str, Any]) -> str:
    """What is wrong with files that are run one after the other, each fed by those before."""
    seed = f"{expected.model.metadata_props['gradtool.loss']}_grad"
    known: dict[str, Any] = {seed: np.ones((), np.float32), **expected.feeds}
    try:
        for path in paths:
            known |= run(path, known, options)
    except Exception as error:  # noqa: BLE001 - whatever went wrong is the row
        return " ".join(f"{type(error).__name__}: {error}".split())[:400]
    return _difference(known, expected)


def run(path: Path, feeds: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs of a file in stock onnxruntime, by name."""
    from gradtool.workloads.ort_options import session

    opened = session(str(path), {"intra_op_num_threads": 1, **options})
    names = [o.name for o in opened.get_outputs()]
    taken = {i.name: feeds[i.name] for i in opened.get_inputs()}
    return dict(zip(names, opened.run(names, taken), strict=True))


def _difference(theirs: Mapping[str, Any], expected: Expected) -> str:
    """Where results differ by more than rounding; empty if they don't.

    A graph that amplifies rounding may differ from ours as ours does from float64, and one with
    kinks as ours does from itself beside.
    """
    missing = [n for n in expected.arrays if n not in theirs]
    if missing:
        return f"no output {missing[0]}"
    worst, where = _worst(theirs, expected.arrays)
    if worst <= TOLERANCE:
        return ""
    exact = expected.exact()
    rounding, _ = _worst(expected.arrays, exact)
    if _worst(theirs, exact)[0] <= TOLERANCE + 30 * rounding:
        return ""
    kinks = max(_worst(expected.beside(seed), expected.arrays)[0] for seed in range(DRAWS))
    if worst <= TOLERANCE + 3 * kinks:
        return ""
    return f"{where} is off by {worst:.1e} (our rounding: {rounding:.1e}, at kinks: {kinks:.1e})"


def _worst(mine: Mapping[str, Any], other: Arrays) -> tuple[float, str]:
    """The largest relative difference in norm, and where it is; what both have not is equal."""
    total = float(np.sqrt(sum(_norm(np.nan_to_num(_wide(a))) ** 2 for a in other.values()))) or 1.0
    worst, where = 0.0, ""
    for name, reference in other.items():
        a, b = _wide(mine[name]), _wide(reference)
        if a.shape != b.shape:
            return np.inf, f"{name} {a.shape} for {b.shape}"
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        error = _norm(np.where(same, 0.0, a - np.where(same, 0.0, b)) * ~same)
        relative = error / (_norm(np.nan_to_num(b)) + 1e-4 * total)
        if not relative <= worst:
            worst, where = relative, name
    return worst, where


def _norm(array: np.ndarray[Any, Any]) -> float:
    return float(np.linalg.norm(array.reshape(-1)))


def _wide(array: Any) -> np.ndarray[Any, Any]:
    return np.asarray(array).astype(np.float64)
