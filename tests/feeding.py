"""Files of every kind, run with sizes at random: in memory, from the command line, by onnxruntime.

Whatever a step takes by name and shape is tried, and what it must refuse.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir

import gradtool as gt
from gradtool import cli
from gradtool.api import model_of
from gradtool.errors import GradtoolError

Arrays = dict[str, np.ndarray]
TOLERANCE = 2e-3


def _mirrored(model: ir.Model, sizes: Mapping[str, int]) -> ir.Model:
    return gt.mirror(gt.grad(model, loss="mean:y"), dims=sizes).model


def _recomputed(model: ir.Model, sizes: Mapping[str, int]) -> ir.Model:
    return gt.recompute(gt.grad(model, loss="mean:y"), "segments", dims=sizes).model


KINDS: dict[str, Callable[[ir.Model, Mapping[str, int]], object]] = {
    "grad": lambda model, _: gt.grad(model, loss="mean:y", input_grad=["x"]),
    "head-grads": lambda model, _: gt.grad(model, head_grads=True),
    "grad-buffers": lambda model, _: gt.grad(
        model, loss="mean:y", grad_buffers=True, input_grad=["x"]
    ),
    "optimizer": lambda model, _: gt.grad(model, loss="mean:y", optimizer="momentum"),
    "mirror": _mirrored,
    "recompute": _recomputed,
}


def command(*words: str) -> tuple[int, str]:
    """The exit code of a command line, and what it says to stderr."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = cli.run([*words])
    return code, said.getvalue()


def from_command_line(path: Path, feeds: Arrays) -> Arrays:
    """All results of a file, gradients by the names of their outputs."""
    named = path.with_suffix(".in.npz")
    np.savez(named, **feeds)
    model = gt.load(path)
    gradients, outputs = (path.with_suffix(f".{what}.npz") for what in ("g", "o"))
    has_gradients = json.loads(model.metadata_props.get("gradtool.gradients", "{}"))
    code, said = command(
        "run", str(path), "--device", "cpu", "--inputs", str(named), "--force",
        *(("--save-grads", str(gradients)) if has_gradients else ()),
        "--save-outputs", str(outputs),
    )  # fmt: skip
    if code:
        raise GradtoolError(f"exit {code}: {said}")
    found = dict(np.load(gradients)) if has_gradients else {}
    return renamed(model, found, dict(np.load(outputs)))


def renamed(model: ir.Model, gradients: Mapping, outputs: Mapping) -> Arrays:
    names = json.loads(model.metadata_props.get("gradtool.gradients", "{}"))
    return {**outputs, **{names[value]: array for value, array in gradients.items()}}


def in_memory(graph: object, feeds: Arrays) -> Arrays:
    """All results of a graph, gradients by the names of their outputs."""
    found = gt.run(graph, feeds)
    return renamed(model_of(graph), found.gradients, found.outputs)


def in_onnxruntime(path: Path, feeds: Arrays) -> Arrays:
    """All results of a file at the default options of stock onnxruntime."""
    import onnxruntime as ort

    ort.set_default_logger_severity(3)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    takes = {i.name for i in (*session.get_inputs(), *session.get_overridable_initializers())}
    fed = {name: array for name, array in feeds.items() if name in takes}
    return dict(zip(names, session.run(names, fed), strict=True))


def apart(found: Arrays, expected: Arrays) -> float:
    """The largest distance, beside the largest number of each array."""
    assert found.keys() == expected.keys(), sorted(found.keys() ^ expected.keys())
    worst = 0.0
    for name, array in expected.items():
        assert found[name].shape == array.shape, f"{name}: {found[name].shape} {array.shape}"
        scale = max(np.abs(array).max(initial=0.0), 1e-3)
        worst = max(worst, float(np.abs(found[name] - array).max(initial=0.0)) / scale)
    return worst


def extra(kind: str, model: ir.Model, feeds: Arrays, y: np.ndarray) -> Arrays:
    """What a kind of step takes beside the inputs of the model, given or left to its default."""
    if kind == "head-grads":
        return {"y_grad": np.cos(np.arange(y.size, dtype=np.float32)).reshape(y.shape)}
    if kind == "optimizer":
        new = {n: v for n, v in model.graph.initializers.items() if n in ("w", "w_momentum")}
        return {"lr": np.array(0.5, np.float32)} | {
            n: np.full(v.shape.numpy(), 0.25, np.float32) for n, v in new.items()
        }
    if kind == "grad-buffers":
        return {
            v.name: np.ones_like(feeds["x"]) if v.name == "x_grad_in" else _ones(v)
            for v in model.graph.inputs if v.name.endswith("_grad_in")
        }  # fmt: skip
    return {}


def _ones(value: ir.Value) -> np.ndarray:
    return np.ones(value.shape.numpy(), np.float32)


def sizes_of(model: ir.Model, feeds: Arrays) -> dict[str, int]:
    """The sizes of the symbols of a model's inputs, each of which is the size of an axis."""
    return {
        dim.value: size
        for value in model.graph.inputs if value.name in feeds
        for dim, size in zip(value.shape, feeds[value.name].shape, strict=True)
        if isinstance(dim, ir.SymbolicDim) and dim.value.isidentifier()
    }  # fmt: skip


def examine(model: ir.Model, batches: list[Arrays], folder: Path) -> Iterator[tuple[str, float]]:
    """Every kind of file of a model, with each batch: what was run, and how far results differ."""
    ys = [gt.run(model, feeds).outputs["y"] for feeds in batches]
    for kind, make in KINDS.items():
        graph = make(model, sizes_of(model, batches[0]))
        path, _ = gt.save(graph, folder / f"{kind}.onnx", force=True)
        for feeds, y in zip(batches, ys, strict=True):
            given = feeds | extra(kind, model_of(graph), feeds, y)
            expected = in_memory(graph, given)
            yield f"{kind} command", apart(from_command_line(path, given), expected)
            yield f"{kind} onnxruntime", apart(in_onnxruntime(path, given), expected)
            if kind in ("grad", "head-grads"):
                yield from _halves(graph, kind, given, expected, folder)


def _halves(
    graph: object, kind: str, given: Arrays, expected: Arrays, folder: Path
) -> Iterator[tuple[str, float]]:
    halves = gt.split(graph)
    first, _ = gt.save(halves.forward, folder / "forward.onnx", force=True)
    second, _ = gt.save(halves.backward, folder / "backward.onnx", force=True)
    for place, whole in (("command", from_command_line), ("onnxruntime", in_onnxruntime)):
        early = whole(first, given)
        late = whole(second, {**early, **given})
        found = {n: a for n, a in {**early, **late}.items() if n in expected}
        yield f"{kind} split {place}", apart(found, expected)


def misfits(feeds: Arrays) -> dict[str, Arrays]:
    """Feeds that do not fit a step, by what is wrong with them."""
    name = max(feeds, key=lambda n: feeds[n].ndim)
    array = feeds[name]
    return {
        "unknown": {**feeds, "qqqqqq": array},
        "misspelt": {n + "s" * (n == name): a for n, a in feeds.items()},
        "beside": {**feeds, f"{name}_": array},
        "type": {**feeds, name: array.astype(np.float64)},
        "whole numbers": {**feeds, name: np.zeros(array.shape, np.int64)},
        "rank": {**feeds, name: array[None]},
        "flat": {**feeds, name: array.reshape(-1)},
        "size": {**feeds, name: np.concatenate([array, array], axis=-1 if array.ndim == 3 else 1)},
        "a parameter": {**feeds, "w": np.zeros((1, 1), np.float32)},
        "missing": {n: a for n, a in feeds.items() if n != name},
    }


def refused(graph: object, feeds: Arrays) -> Iterator[str]:
    """What is wrong with how misfits are refused: nothing, where each is told in one line."""
    for what, wrong in misfits(feeds).items():
        try:
            gt.run(graph, wrong)
        except GradtoolError as error:
            if error.exit_code != 2 or "\n" in str(error):
                yield f"{what}: {error.exit_code} {error}"
        else:
            yield f"{what}: it ran"
