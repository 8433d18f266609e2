"""What is asked of a node with windows: in our engine and written, as in stock onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from windowed import Array, Windowed, model_of, paddings, written_out

import gradtool as gt
from gradtool.errors import GradtoolError

TOLERANCE = 2e-5


@dataclass(frozen=True)
class Verdict:
    """What disagrees, and why a comparison was left out."""

    wrong: tuple[str, ...] = ()
    excluded: str = ""


def stock(path: Path, feeds: dict[str, Array]) -> dict[str, Array]:
    """The outputs of a file in stock onnxruntime."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = {i.name for i in session.get_inputs()}
    found = session.run(None, {k: v for k, v in feeds.items() if k in names})
    return dict(zip((o.name for o in session.get_outputs()), found, strict=True))


def near(a: Array, b: Array) -> bool:
    bound = TOLERANCE * max(1.0, float(np.abs(b).max(initial=0.0)))
    return a.shape == b.shape and np.allclose(a, b, rtol=TOLERANCE, atol=bound)


def examine(case: Windowed, folder: Path) -> Verdict:
    """Every comparison for one node; files are written into `folder`."""
    rng = np.random.default_rng(1)
    shape = (2, 4, *case.sizes)
    x = rng.permutation(np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32)).reshape(shape)
    feeds = {"x": x, "w": rng.uniform(-1, 1, case.weights).astype(np.float32)}
    feeds = feeds if case.weights else {"x": x}
    onnx.save(model_of(case, loss=False), folder / "forward.onnx")
    try:
        theirs = stock(folder / "forward.onnx", feeds)["y"]
    except Exception as error:  # noqa: BLE001 - of whatever class
        theirs, refused = None, str(error)
    if case.op != "MaxUnpool":
        counts = paddings(case)[2]
        if min(counts) < 1:
            return Verdict((), "no window fits")
    try:
        mine = gt.run(gt.load(folder / "forward.onnx"), feeds).outputs["y"]
    except GradtoolError as error:
        return Verdict((f"forward refused: {error}",))
    c = rng.uniform(-1, 1, mine.shape).astype(np.float32)
    if case.op == "MaxUnpool":
        assert theirs is not None, refused
        exact = _unpooled(x, theirs, c)
    else:
        exact = written_out(case, x, feeds.get("w"), c)
    wrong = [] if near(mine, exact[0]) else ["our forward differs from what is written out"]
    if theirs is not None and not near(mine, theirs):
        wrong.append("our forward differs from onnxruntime's")
    try:
        wrong += _gradients(case, feeds | {"c": c}, exact, folder)
    except GradtoolError as error:
        if case.open_sizes and case.given.get("ceil_mode") and "--dim" in str(error):
            return Verdict(tuple(wrong), "ceil_mode over dilations of open sizes, and it says so")
        wrong.append(f"gradient refused: {error}")
    return Verdict(tuple(wrong), "" if theirs is not None else "refused by onnxruntime")


def _gradients(case: Windowed, feeds: dict[str, Array], exact: Any, folder: Path) -> list[str]:
    names = [name for name in ("x", "w") if name in feeds]
    graph = gt.grad(gt.load(model_of(case)), loss="sum:loss", input_grad=names, wrt=[])
    gt.save(graph, folder / "gradient.onnx")
    found = gt.run(graph, feeds)
    written = stock(folder / "gradient.onnx", feeds)
    wrong = []
    if not near(written["y"], exact[0]):
        wrong.append("the written forward differs in onnxruntime")
    for name, gradient in zip(names, exact[1:], strict=False):
        if not near(found.gradients[name], gradient):
            wrong.append(f"our gradient of {name} is wrong")
        if not near(written[graph.gradients[name]], gradient):
            wrong.append(f"the written gradient of {name} is wrong in onnxruntime")
    return wrong


def _unpooled(x: Array, theirs: Array, c: Array) -> tuple[Array, Array]:
    """What onnxruntime unpools, and the gradient: c where each maximum went."""
    dx = np.zeros(x.size)
    for place in np.flatnonzero(theirs):
        dx[np.flatnonzero(x == theirs.flat[place])] += c.flat[place]
    return theirs, dx.reshape(x.shape)
