"""What is asked of a drawn case, and who answers: our executor, differences, onnxruntime.

1. forward in the arena, every buffer overwritten the moment it dies, against stock onnxruntime;
2. the gradient in float64 against five-point differences along a direction for each input;
3. the gradient in the type of the case against that in float64;
4. the written file in stock onnxruntime at its default options against the same, and read again;
5. all of it with sizes left open, against what they were;
6. every shape that is inferred against what comes out.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from drawn.case import Array, Case
from drawn.exclusions import why_refused, why_unlike
from drawn.models import build, opened

import gradtool as gt
from gradtool import io
from gradtool.errors import GradtoolError
from gradtool.exec.device import open_device
from gradtool.exec.executor import Executor
from gradtool.exec.parameters import parameters_of
from gradtool.exec.run import planned
from gradtool.graph.composites import DOMAIN
from gradtool.ops.composites.calls import inline
from gradtool.passes.widen import widen
from gradtool.program.bind_dims import bound
from gradtool.workloads import ort_options

# Attributes are single precision, and so are parts of onnxruntime's kernels of double.
ROUNDING = {"float16": 2.0**-10, "float32": 2.0**-22, "float64": 2.0**-26}
EMPTY = "an empty tensor of open sizes: what -1 is in a Reshape cannot be told"
Arrays = dict[str, Array]


@dataclass
class Verdict:
    """What was found out about a case: what is wrong, what was excluded and why, what was asked."""

    name: str
    text: str
    wrong: list[str] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


class Wrong(AssertionError):
    """A check that fails."""


class Excluded(Exception):
    """A check that says nothing here, with the reason."""


def judge(case: Case) -> Verdict:
    """Every check of a case. One that fails leaves out those that build on it."""
    verdict = Verdict(case.name, str(case))
    with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
        _Judge(case, verdict, Path(folder)).run()
    return verdict


class _Judge:
    def __init__(self, case: Case, verdict: Verdict, folder: Path) -> None:
        self.case, self.verdict, self.folder = case, verdict, folder
        self.feeds: Arrays = {}
        self.exact: Arrays = {}
        self.outputs: Arrays = {}
        self.lacking = ""

    def run(self) -> None:
        if not self._ask("forward", self._forward):
            return
        self._ask("forward in onnxruntime", self._forward_elsewhere)
        if not self._ask("differences", self._differences):
            return
        self._ask("gradient", self._gradient)
        self._ask("written", self._written)
        self._ask("open", self._open)

    def _ask(self, check: str, question: Any) -> bool:
        """Whether the checks that build on this one can be made. Any other error is a defect."""
        try:
            question()
        except Excluded as reason:
            self.verdict.excluded.append(f"{check}: {reason}")
        except GradtoolError as error:
            reason = why_refused(self.case, str(error)) if check == "open" else ""
            if check == "open" and any(0 in g.array.shape for g in self.case.inputs if g):
                reason = reason or EMPTY
            if reason:
                self.verdict.excluded.append(f"{check}: refused: {reason}")
            else:
                self.verdict.wrong.append(f"{check}: refused: {error}")
            return False
        except Exception as error:  # noqa: BLE001 - whatever it is
            if check == "open" and any(0 in g.array.shape for g in self.case.inputs if g):
                self.verdict.excluded.append(f"open: {EMPTY}")
                return False
            said = str(error) if isinstance(error, Wrong) else f"{type(error).__name__}: {error}"
            self.verdict.wrong.append(f"{check}: {said[:400]}")
            return isinstance(error, Wrong) and check == "forward in onnxruntime"
        else:
            self.verdict.asked.append(check)
        return True

    # -------------------------------------------------------------------- forward

    def _load(self, sizes: Any = None) -> ir.Model:
        proto = build(self.case, sizes)
        path = self.folder / "forward.onnx"
        path.write_bytes(proto.SerializeToString())
        empty = {
            f"x{i}": list(g.array.shape)
            for i, g in enumerate(self.case.inputs)
            if g is not None and not g.constant and 0 in g.array.shape and sizes is None
        }
        return gt.load(path, shapes=empty)  # a size of 0 that a file declares is open

    def _forward(self) -> None:
        given = {f"x{i}": g for i, g in enumerate(self.case.inputs) if g is not None}
        fed = {n: g for n, g in given.items() if not g.constant}
        self.feeds = {n: g.typed(self.case.dtype) for n, g in fed.items()}
        self.outputs = dict(gt.run(self._load(), self.feeds).outputs)

    def _forward_elsewhere(self) -> None:
        self.lacking = "onnxruntime does not run the operator"
        path = self.folder / "forward.onnx"
        if self.case.op.startswith(f"{DOMAIN}::"):  # of which it has the body alone
            path = self.folder / "body.onnx"
            gt.save(self._load(), path)
        try:
            theirs = stock(path, self.feeds)
        except RuntimeError as error:
            self._excuse(str(error))
            raise Wrong(f"onnxruntime: {_short(error)}") from error
        self.lacking = "onnxruntime computes the operator otherwise"
        bound = 32 * ROUNDING[self.case.dtype] * self.case.rough
        try:
            for name, array in theirs.items():
                agree(name, self.outputs[name], array, bound)
        except Wrong as error:
            self._excuse(str(error))
            raise
        self.lacking = ""

    def _excuse(self, error: str) -> None:
        """Leave a check out if it says nothing about us."""
        reason = why_unlike(self.case, error)
        if reason:
            raise Excluded(reason)

    # ------------------------------------------------------------------ gradients

    def _training(self, sizes: Any = None, *, wide: bool = False) -> gt.TrainingGraph:
        wrt = [f"x{i}" for i, g in enumerate(self.case.inputs) if g is not None and g.moved]
        model = self._load(sizes)
        return gt.grad(widen(model) if wide else model, head_grads=True, wrt=wrt)

    def _heads(self, training: gt.TrainingGraph) -> Arrays:
        """A weight for each element of each output."""
        found = {}
        for value in training.model.graph.inputs:
            name = (value.name or "").removesuffix("_grad")
            if value.name not in self.feeds:
                rng = np.random.default_rng([7, len(found)])
                head = np.asarray(rng.integers(4, 13, self.outputs[name].shape) / 8)
                found[value.name or ""] = head.astype(value.dtype.numpy())
        return found

    def _differences(self) -> None:
        training = self._training(wide=True)
        feeds = {
            n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in self.feeds.items()
        }
        heads = self._heads(training)
        self.exact = dict(gt.run(training, feeds | heads).gradients)
        forward = widen(self._load())
        executor = Executor(planned(forward, {}), open_device("cpu"), parameters_of(forward))
        for name, gradient in self.exact.items():
            if gradient.shape != feeds[name].shape:
                raise Wrong(f"{name} has shape {feeds[name].shape}, its gradient {gradient.shape}")
            self._along(executor, feeds, heads, name, gradient)

    def _along(
        self, executor: Executor, feeds: Arrays, heads: Arrays, name: str, gradient: Array
    ) -> None:
        """One input's gradient against the slope along one direction."""
        direction = np.random.default_rng(11).uniform(-1, 1, gradient.shape)
        mine = float(np.vdot(gradient, direction))
        if not np.isfinite(mine):
            raise Wrong(f"the gradient of {name} is {mine}")

        def loss(t: float) -> float:
            for key, array in feeds.items():
                moved = array + t * direction if key == name else array
                executor.set_input(key, np.asarray(moved, array.dtype, order="C"))
            executor.step()
            found = executor.outputs()
            return float(sum(np.vdot(found[n.removesuffix("_grad")], c) for n, c in heads.items()))

        here = abs(loss(0.0))
        scale = float(np.linalg.norm(gradient) * np.linalg.norm(direction)) + 1e-3 * here + 1e-9
        errors = []
        for h in self.case.steps:
            slope = (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12 * h)
            errors.append(abs(mine - slope) / scale)
            if errors[-1] < 2e-7 * self.case.rough:
                return
        raise Wrong(f"{name}: off by {min(errors):.1e}: {mine}, differences say {slope}")

    def _gradient(self) -> None:
        training = self._training()
        feeds = self.feeds | self._heads(training)
        found = gt.run(training, feeds, check_arena=True).gradients
        shapes_hold(training, found, {})
        self._like_exact(found)

    def _like_exact(self, found: Any) -> None:
        bound = 512 * ROUNDING[self.case.dtype] * self.case.rough
        for name, gradient in self.exact.items():
            agree(f"gradient of {name}", found[name], gradient, bound)

    def _written(self) -> None:
        training = self._training()
        self._write_and_run(training)
        again = gt.load(self.folder / "grad.onnx")
        feeds = self.feeds | self._heads(training)
        found = gt.run(again, {v.name: feeds[v.name] for v in again.graph.inputs}).gradients
        self._like_exact(found)

    def _write_and_run(self, training: gt.TrainingGraph) -> None:
        feeds = self.feeds | self._heads(training)
        path, _ = io.save(training.model, self.folder / "grad.onnx", force=True, finish=_standard)
        if self.lacking:
            raise Excluded(self.lacking)
        try:
            theirs = stock(path, feeds)
        except RuntimeError as error:
            if self.case.dtype != "float32":
                self._excuse(str(error))
            raise Wrong(f"onnxruntime: {_short(error)}") from error
        self._like_exact({n: theirs[v] for n, v in training.gradients.items()})

    # ----------------------------------------------------------------- open sizes

    def _open(self) -> None:
        empty = any(0 in g.array.shape for g in self.case.inputs if g)
        if empty and self.case.op in ("CumProd", "ReduceProd"):
            raise Excluded("onnxruntime dies of a Scan over an empty tensor")
        failed = []
        for sizes in opened(self.case):
            try:
                self._open_to(sizes)
            except (Wrong, GradtoolError) as error:
                error.args = (f"{sizes}: {error}",)
                raise
            except Excluded as reason:
                failed.append(reason)
        if failed:
            raise failed[0]

    def _open_to(self, sizes: dict[int, list[Any]]) -> None:
        training = self._training(sizes)
        feeds = self.feeds | self._heads(training)
        symbols = {
            d: n
            for slot, dims in sizes.items()
            for d, n in zip(dims, self.feeds[f"x{slot}"].shape, strict=True)
            if isinstance(d, str)
        }
        for value in training.model.graph.inputs:
            named = zip(value.shape, feeds[value.name].shape, strict=True)
            symbols |= {str(d): n for d, n in named if str(d).isidentifier()}
        open_still = io.symbols(training.model)  # others are decided by nodes
        symbols = {name: size for name, size in symbols.items() if name in open_still}
        result = gt.run(bound(training.model, symbols), feeds)
        shapes_hold(training, dict(result.gradients) | self.outputs, symbols)
        self._like_exact(result.gradients)
        self._write_and_run(training)


def _standard(model: ir.Model) -> None:
    """What `gt.save` does; onnxruntime is asked here, and needs no process of its own for it."""
    inline(model)
    ort_options.mark(model)


def agree(name: str, mine: Array, expected: Array, bound: float) -> None:
    """Whether two arrays agree, measured by the largest element."""
    if mine.shape != expected.shape:
        raise Wrong(f"{name} has shape {mine.shape}, not {expected.shape}")
    if mine.dtype.kind not in "fc":
        if not np.array_equal(mine, expected):
            raise Wrong(f"{name}: {np.sum(mine != expected)} of {mine.size} elements differ")
        return
    a, b = (np.asarray(v, np.float64) for v in (mine, expected))
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        raise Wrong(f"{name}: not finite at other places")
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        raise Wrong(f"{name}: other infinities")
    error = np.abs(a - b)[finite].max(initial=0.0)
    size = np.abs(b)[finite].max(initial=0.0)
    if error > bound * (size + 0.1):
        raise Wrong(f"{name}: off by {error:.1e} of {size:.1e}")


def shapes_hold(training: gt.TrainingGraph, found: Any, symbols: dict[str, int]) -> None:
    """Whether the shapes of outputs are what was inferred."""
    values = {v.name: v for v in training.model.graph.outputs}
    names = {**{n: n for n in values}, **training.gradients}
    for name, array in found.items():
        value = values.get(names.get(name, ""))
        if value is None or value.shape is None:
            continue
        dims = [d if isinstance(d, int) else d.evaluate(symbols) for d in value.shape]
        known = len(dims) == array.ndim and all(
            d is None or not isinstance(d, int) or d == n
            for d, n in zip(dims, array.shape, strict=True)
        )
        if not known:
            raise Wrong(f"{name} is inferred as {value.shape}, and is {array.shape}")


def stock(path: Path, feeds: Arrays) -> Arrays:
    """What onnxruntime makes of a file at its default options."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        wanted = {v.name for v in session.get_inputs()}
        names = [v.name for v in session.get_outputs()]
        results = session.run(names, {n: a for n, a in feeds.items() if n in wanted})
    except Exception as error:
        raise RuntimeError(str(error)) from error
    return {n: np.asarray(a) for n, a in zip(names, results, strict=True)}


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:260]
