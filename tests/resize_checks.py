"""What is asked of a Resize: forward as in onnxruntime, both gradients those of the exact map."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from checkers import evaluate
from resizes import Resizing, model_of

import gradtool as gt
from gradtool import io
from gradtool.ops.composites.calls import expand, inline

Array = np.ndarray[Any, Any]
TOLERANCE = 2e-5

REFUSED = "onnxruntime refuses the node; the written gradient is run by our kernels, node by node"
COPIED = (
    "onnxruntime copies an axis of scale 1 although tf_crop_and_resize cuts it; the formula of the "
    "standard decides"
)
LAST = (
    "onnxruntime antialiases [N, H, W, C] without extrapolating, and [N, C, H, W] with it; the "
    "latter decides"
)
NEGATIVE = "onnxruntime overlooks negative axes where a policy keeps the aspect ratio"
UNKNOWN = (
    "the gradient of a Resize that keeps the aspect ratio needs known sizes (antialiased, a known "
    "region too), and says so"
)


@dataclass(frozen=True)
class Verdict:
    """What disagrees, and why a comparison was left out; a reason is no pardon for what is left."""

    wrong: tuple[str, ...] = ()
    excluded: str = ""


class Stock:
    """A file in stock onnxruntime."""

    def __init__(self, path: Path) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        self.session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def __call__(self, feeds: dict[str, Array], name: str) -> Array:
        wanted = {i.name for i in self.session.get_inputs()}
        found: Array = self.session.run([name], {k: v for k, v in feeds.items() if k in wanted})[0]
        return found


def jacobian(forward: Callable[[Array], Array], shape: tuple[int, ...]) -> Array:
    """`[elements of x, *shape of y]` of a map that is linear but for what it has at zero."""
    units = np.eye(int(np.prod(shape)), dtype=np.float32).reshape(-1, *shape)
    offset = forward(np.zeros(shape, np.float32)).astype(np.float64)
    return np.stack([forward(unit) - offset for unit in units])


def near(a: Array, b: Array) -> bool:
    bound = TOLERANCE * max(1.0, float(np.abs(b).max(initial=0.0)))
    return a.shape == b.shape and np.allclose(a, b, rtol=TOLERANCE, atol=bound)


def examine(case: Resizing, folder: Path) -> Verdict:
    """Every comparison for one node; files are written into `folder`."""
    forward, gradient = folder / "forward.onnx", folder / "gradient.onnx"
    onnx.save(model_of(case), forward)
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, case.shape).astype(np.float32)
    graph = gt.load(forward)
    excluded, known = _stock_jacobian(case, folder)
    shape = _own_shape(graph, x) if known is None else known.shape[1:]
    feeds = {"x": x, "c": rng.uniform(0.5, 1.5, shape).astype(np.float32)}
    try:
        made = gt.grad(graph, loss="loss", wrt=[], input_grad=["x"])
    except gt.NotDifferentiable as error:
        unknown = "policy" in str(error) and (case.symbolic or case.computed)
        return Verdict((), UNKNOWN) if unknown else Verdict((f"refused: {error}",))
    io.save(made.model, gradient, force=True, finish=inline)  # it is loaded by onnxruntime below
    written = gt.load(gradient)
    name = json.loads(written.metadata_props["gradtool.gradients"])["x"]
    result = gt.run(written, feeds)
    mine = result.gradients["x"]
    wrong = [] if _is_own(graph, feeds, mine, rng) else ["our gradient is not that of our forward"]
    if known is None:
        expand(written, lambda _: False)
        bodies = evaluate(written, feeds)[name]
        wrong += [] if near(bodies, mine) else ["the written gradient differs in our kernels"]
        return Verdict(tuple(wrong), excluded)
    theirs = _stock_forward(case, folder)(x)
    if not near(result.outputs["y"], theirs):
        excluded = COPIED if _cuts_what_stays(case) else ""
        expected = _standard(case, x, theirs.shape) if excluded else theirs
        wrong += [] if near(result.outputs["y"], expected) else ["forward differs"]
    exact = np.tensordot(known, feeds["c"].astype(np.float64), axes=x.ndim).reshape(case.shape)
    wrong += (
        []
        if near(Stock(gradient)(feeds, name), exact)
        else ["the written gradient is wrong in onnxruntime"]
    )
    wrong += [] if excluded or near(mine, exact) else ["our gradient is wrong"]
    return Verdict(tuple(wrong), excluded)


def _own_shape(graph: Any, x: Array) -> tuple[int, ...]:
    found: Array = gt.run(graph, {"x": x, "c": _one(x)}).outputs["y"]
    return found.shape


def _is_own(graph: Any, feeds: dict[str, Array], mine: Array, rng: np.random.Generator) -> bool:
    """Whether a gradient is that of the map that our own kernels compute, in three directions."""
    c = feeds["c"].astype(np.float64)

    def loss(x: Array) -> float:
        y = evaluate(graph, {"x": x, "c": feeds["c"]})["y"]
        return float(np.vdot(y.astype(np.float64), c))

    at_zero = loss(np.zeros_like(mine))
    for _ in range(3):
        direction = rng.uniform(-1, 1, mine.shape).astype(np.float32)
        slope = float(np.vdot(mine.astype(np.float64), direction))
        scale = np.linalg.norm(mine) * np.linalg.norm(direction) + abs(at_zero) + 1e-6
        if abs(loss(direction) - at_zero - slope) > TOLERANCE * scale:
            return False
    return True


def _standard(case: Resizing, x: Array, shape: tuple[int, ...]) -> Array:
    """The formula of a region, written out: every element's weight at every place of an axis."""
    y = x.astype(np.float64)
    count = len(case.axes)
    outside = np.zeros(shape, bool)
    for i, axis in enumerate(case.axes):
        assert case.roi is not None
        size, places = x.shape[axis], shape[axis]
        start, end = np.float32(case.roi[i]), np.float32(case.roi[count + i])
        last, j = np.float32(size - 1), np.arange(places, dtype=np.float32)
        positions = start * last + j * (end - start) * last / np.float32(max(places - 1, 1))
        if places == 1:
            positions = np.float32(0.5) * (start + end) * last + j
        shrink = min(1.0, case.scales[i] if case.scales else places / size)
        weights = np.zeros((places, size))
        for place, position in enumerate(positions):
            for element, weight in _weights(case, float(position), shrink):
                if 0 <= element < size or not case.attributes.get("exclude_outside", 0):
                    weights[place, min(max(element, 0), size - 1)] += weight
        weights /= np.where(weights.sum(1) == 0, 1, weights.sum(1))[:, None]
        y = np.moveaxis(np.tensordot(weights, y, axes=(1, axis)), 0, axis)
        cut = (positions < 0) | (positions > size - 1)
        outside |= cut.reshape([-1 if a == axis else 1 for a in range(x.ndim)])
    return np.where(outside, case.attributes.get("extrapolation_value", 0.0), y)


def _weights(case: Resizing, position: float, shrink: float) -> Iterator[tuple[int, float]]:
    """What a place at `position` shows of which element, outside included."""
    if case.mode == "nearest":
        rounding = case.attributes.get("nearest_mode", "round_prefer_floor")
        choose = {
            "floor": np.floor,
            "ceil": np.ceil,
            "round_prefer_ceil": lambda p: np.floor(p + 0.5),
        }
        yield int(choose.get(rounding, lambda p: np.ceil(p - 0.5))(position)), 1.0
        return
    a = case.attributes.get("cubic_coeff_a", -0.75)
    stretch = shrink if case.attributes.get("antialias", 0) else 1.0
    for element in range(int(position - 3 / stretch) - 1, int(position + 3 / stretch) + 2):
        d = abs(element - position) * stretch
        if case.mode == "linear":
            yield element, max(0.0, 1 - d)
        elif d <= 1:
            yield element, (a + 2) * d**3 - (a + 3) * d**2 + 1
        elif d < 2:
            yield element, a * (d**3 - 5 * d**2 + 8 * d - 4)


def _one(x: Array) -> Array:
    return np.ones([1] * x.ndim, np.float32)


def _stock_forward(case: Resizing, folder: Path) -> Callable[[Array], Array]:
    """Forward in onnxruntime; of what it gets wrong with channels last, with channels first."""
    if not _extrapolates_channels_last(case):
        stock = Stock(folder / "forward.onnx")
        return lambda x: stock({"x": x, "c": _one(x)}, "y")
    first = [0, 3, 1, 2]
    axes = [first.index(axis) for axis in case.axes]
    shape = tuple(case.shape[axis] for axis in first)
    twin = replace(case, shape=shape, attributes=case.attributes | {"axes": axes})
    onnx.save(model_of(twin), folder / "twin.onnx")
    stock = Stock(folder / "twin.onnx")
    return lambda x: stock({"x": x.transpose(first), "c": _one(x)}, "y").transpose(0, 2, 3, 1)


def _extrapolates_channels_last(case: Resizing) -> bool:
    crops = case.coordinates == "tf_crop_and_resize" and case.attributes.get("antialias", 0)
    return bool(crops) and len(case.shape) == 4 and _changed(case)[1]


def _stock_jacobian(case: Resizing, folder: Path) -> tuple[str, Array | None]:
    """Why onnxruntime has none to compare with, or the map that it computes."""
    if "keep_aspect_ratio_policy" in case.attributes and min(case.attributes["axes"]) < 0:
        return NEGATIVE, None
    try:
        found = jacobian(_stock_forward(case, folder), case.shape)
    except Exception as error:
        if "ScalesValidation" not in str(error):
            raise
        return REFUSED, None
    return LAST if _extrapolates_channels_last(case) else "", found


def _changed(case: Resizing) -> list[bool]:
    """By axis of x, whether it is given another scale than 1."""
    ratios = case.scales or [
        s / case.shape[a] for s, a in zip(case.sizes or (), case.axes, strict=True)
    ]
    found = dict(zip(case.axes, ratios, strict=True))
    return [found.get(axis, 1) != 1 for axis in range(len(case.shape))]


def _cuts_what_stays(case: Resizing) -> bool:
    """Whether a region cuts an axis of scale 1."""
    if case.roi is None:
        return False
    count = len(case.axes)
    cuts = [ends != (0, 1) for ends in zip(case.roi[:count], case.roi[count:], strict=True)]
    want = case.sizes or [
        int(s * case.shape[a]) for s, a in zip(case.scales or (), case.axes, strict=True)
    ]
    kept = [n == case.shape[a] for n, a in zip(want, case.axes, strict=True)]
    return any(c and k for c, k in zip(cuts, kept, strict=True))
