"""Models for stock_runtime.py, by name: each is made when its turn comes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks")]

import cases  # noqa: E402
from checkers import build  # noqa: E402
from stock_files import RANDOM, Subject  # noqa: E402

import gradtool as gt  # noqa: E402
from gradtool import shapes  # noqa: E402
from gradtool.emit.builder import Builder  # noqa: E402
from gradtool.graph import walk  # noqa: E402
from gradtool.graph.families import FAMILIES  # noqa: E402

ZOO = ROOT.parent / "shared" / "zoo"
MOST_BYTES = 5 * 2**29  # 2.5 GiB: weights, gradients and activations, which both runtimes hold
GRAPHS = 300
Make = Callable[[], Subject]


class Left(Exception):
    """A subject that is left out, and why."""


def subjects(kinds: list[str], exports: Path) -> dict[str, Make]:
    """Subjects by name, those of each kind in order."""
    makers: dict[str, Callable[[], dict[str, Make]]] = {
        "samples": _samples,
        "small": _small,
        "graphs": _graphs,
        "cases": _cases,
        "transposed": _transposed,
        "whole": _whole,
        "exports": lambda: _exports(exports),
        "full": _full,
    }
    chosen = kinds or list(makers)
    return {name: make for kind in chosen for name, make in makers[kind]().items()}


# ------------------------------------------------------------------------- models


def _loaded(name: str, path: Path, **given: Any) -> Subject:
    model = gt.load(path)
    drawing = sorted({n.op_type for n in walk.nodes(model.graph)} & set(RANDOM))
    if drawing:
        raise Left(f"draws at random: {', '.join(drawing)}")
    return Subject(name, model, **given)


def _arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    with np.load(path) as loaded:
        return {n: loaded[n] for n in loaded.files}


def _samples() -> dict[str, Make]:
    def make(path: Path) -> Subject:
        return _loaded(f"samples/{path.stem}", path, feeds=_arrays(path.with_suffix(".npz")))

    paths = sorted((ROOT / "samples").glob("*.onnx"))
    return {f"samples/{p.stem}": lambda p=p: make(p) for p in paths}


def _small() -> dict[str, Make]:
    def make(folder: Path) -> Subject:
        wrt = list(_arrays(folder / "grads.npz"))
        feeds = _arrays(folder / "inputs.npz")
        return _loaded(
            f"small/{folder.name}", folder / "model.onnx", options={"wrt": wrt}, feeds=feeds
        )

    folders = sorted(p.parent for p in (ZOO / "small").glob("*/grads.npz"))
    return {f"small/{f.name}": lambda f=f: make(f) for f in folders}


def _full() -> dict[str, Make]:
    def make(path: Path) -> Subject:
        """A full-size model, with random weights where it has none.

        Raises:
            Left: it takes more than this machine is asked for.
        """
        subject = _loaded(f"full/{path.parent.name}/{path.stem}", path)
        rng = np.random.default_rng(0)
        held = 0
        for value in subject.forward.graph.initializers.values():
            if getattr(value.const_value, "absent", False):
                held += value.const_value.nbytes
        dims = {s: 1 if i == 0 else 8 for i, s in enumerate(gt.io.symbols(subject.forward))}
        training = gt.grad(subject.forward)
        total = gt.plan(training, dims=dims).total + 2 * held
        if total > MOST_BYTES:
            raise Left(f"takes {total / 2**30:.1f} GiB")
        for value in subject.forward.graph.initializers.values():
            if getattr(value.const_value, "absent", False):
                value.const_value = _weight(rng, value)
        return replace(subject, dims=dims)

    paths = sorted((ZOO / "full").glob("*/*.onnx"))
    return {f"full/{p.parent.name}/{p.stem}": lambda p=p: make(p) for p in paths}


def _weight(rng: np.random.Generator, value: ir.Value) -> ir.Tensor[Any]:
    """Numbers of the size that layers begin with; variances and gains about 1."""
    shape, dtype = tuple(value.shape.numpy()), value.dtype.numpy()
    if dtype.kind != "f":
        return ir.Tensor(np.zeros(shape, dtype), name=value.name)
    if len(shape) < 2:
        centre = 0.0 if any(w in value.name for w in ("bias", "mean")) else 1.0
        drawn = centre + 0.1 * rng.random(shape, np.float32)
    else:
        drawn = rng.standard_normal(shape, np.float32) / np.sqrt(np.prod(shape[1:]))
    return ir.Tensor(drawn.astype(dtype), name=value.name)


def _exports(folder: Path) -> dict[str, Make]:
    """Files made by torch_exports.py."""

    def make(path: Path) -> Subject:
        subject = _loaded(f"exports/{path.stem}", path)
        sizes = {"batch": 2, "length": 6, "seq": 6}
        return replace(subject, dims={s: sizes.get(s, 3) for s in gt.io.symbols(subject.forward)})

    return {f"exports/{p.stem}": lambda p=p: make(p) for p in sorted(folder.glob("*.onnx"))}


# ------------------------------------------------------------------------- graphs


@cache
def _recipes() -> list[Any]:
    from hypothesis import HealthCheck, Phase, given, settings
    from random_graphs import recipes

    found: list[Any] = []

    @settings(max_examples=GRAPHS, derandomize=True, database=None, deadline=None,
              phases=[Phase.generate], suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(recipes())
    def draw(recipe: Any) -> None:
        found.append(recipe)

    draw()
    return found


def of_recipe(name: str, recipe: Any) -> Subject:
    """The model of a random graph."""
    from random_graphs import assemble

    feeds = {n: a.astype(np.float32) for n, a in recipe.inputs.items()}
    options = {"loss": "loss", "wrt": list(recipe.leaves)}
    return Subject(name, assemble(recipe, np.float32), options, feeds)


def _graphs() -> dict[str, Make]:
    names = [f"graphs/{i}" for i in range(GRAPHS)]
    return {n: lambda i=i, n=n: of_recipe(n, _recipes()[i]) for i, n in enumerate(names)}


# -------------------------------------------------------------------------- cases


def _table() -> dict[str, Any]:
    for family in FAMILIES:
        if find_spec(f"operators.{family}"):
            import_module(f"operators.{family}")
    return {c.id: c for c in cases.CASES if c.gradient}


def _cases() -> dict[str, Make]:
    return {f"cases/{i}": lambda i=i, c=c: of_case(f"cases/{i}", c) for i, c in _table().items()}


def _transposed() -> dict[str, Make]:
    """The same between Transposes, which onnxruntime moves past the operator and its gradient."""
    return {
        f"transposed/{i}": lambda i=i, c=c: of_case(f"transposed/{i}", c, between=True)
        for i, c in _table().items()
    }


def of_case(name: str, case: Any, *, between: bool = False) -> Subject:
    """The model of a case with the loss `Σ y · (y + 1)`."""
    if not case.ort:
        raise Left("onnxruntime lacks the operator, or computes it otherwise")
    if case.opset < 18:
        raise Left("an old form, which loading raises")
    # Open sizes are not 1 to a Squeeze without axes; at run time, those that are would be dropped.
    drops = case.op == "Squeeze" and len(case.inputs) == 1
    model, feeds = build(case, np.float32, symbolic=not drops)
    graph, (node,) = model.graph, list(model.graph)
    outer = [a for a, g in zip(node.inputs, case.inputs, strict=False) if a in graph.inputs]
    wrt = [v.name for v, g in zip(node.inputs, case.inputs, strict=False)
           if isinstance(g, cases.Floats) and not g.fixed]  # fmt: skip
    if not wrt:
        raise Left("nothing to differentiate by")
    if between:
        _enter_transposed(model, node, outer, feeds)
    op = Builder(model, stage="forward")
    terms = []
    for value in list(graph.outputs):
        if value.dtype is None or not value.dtype.is_floating_point():
            continue
        if between and len(value.shape) > 1:
            value = op.Transpose(value, perm=[*range(1, len(value.shape)), 0])  # noqa: PLW2901
        term = op.Mul(value, op.Add(value, 1.0))
        terms.append(op.ReduceSum(op.cast(term, ir.DataType.FLOAT), keepdims=0))
    loss = op.Sum(*terms)
    loss.name = "the_loss"
    graph.outputs.append(loss)
    shapes.infer(model)
    return Subject(name, model, {"loss": "the_loss", "wrt": wrt}, feeds)


def _enter_transposed(
    model: ir.Model, node: ir.Node, outer: list[Any], feeds: dict[str, Any]
) -> None:
    """Inputs come with their first axis last."""
    op = Builder(model, stage="forward")
    for value in outer:
        rank = len(value.shape)
        if rank < 2:
            continue
        inner = [rank - 1, *range(rank - 1)]
        with op.at(node, stage="forward", source="", prefix="before"):
            uses = list(value.uses())
            value.shape = ir.Shape([*list(value.shape)[1:], value.shape[0]])
            moved = op.Transpose(value, perm=inner)
        for use in uses:
            use.node.replace_input_with(use.idx, moved)
        feeds[value.name] = np.ascontiguousarray(
            np.transpose(feeds[value.name], [*range(1, rank), 0])
        )


def _whole() -> dict[str, Make]:
    for family in ("control", "sequence"):
        import_module(f"operators.{family}")

    def make(case: Any) -> Subject:
        from graphs import parse

        model = parse(case.text, case.weights)
        feeds = {n: np.asarray(a) for n, a in case.feeds.items()}
        options = {"loss": "sum", "wrt": case.wrt.split()}
        return Subject(f"whole/{case.name}", model, options, feeds)

    return {f"whole/{c.name}": lambda c=c: make(c) for c in cases.WHOLE}
