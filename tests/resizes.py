"""Random Resize and Upsample nodes: what is drawn, and the models that hold them.

A model computes `loss = Σ c · Resize(x)`.  Resize is linear in x, so its Jacobian is known exactly
from its values at the unit vectors, and the gradient is that matrix's transpose times c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SCALES = (1 / 3, 0.4, 0.5, 0.6, 2 / 3, 0.7, 0.75, 0.8, 0.9, 1.05, 1.1, 1.3, 1.5, 1.6, 2, 2.5, 3, 4)
COORDINATES = {
    "half_pixel": 11, "pytorch_half_pixel": 11, "align_corners": 11, "asymmetric": 11,
    "tf_crop_and_resize": 11, "half_pixel_symmetric": 19,
}  # fmt: skip
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
OPSETS = (7, 8, 9, 10, 11, 13, 18, 19, 21)
# The axes that onnxruntime resizes, by mode and rank; by the nearest element it resizes all.
SUPPORTED = {
    ("linear", 2): [(0, 1)], ("linear", 3): [(0, 1, 2)], ("linear", 4): [(2, 3), (1, 2)],
    ("linear", 5): [(2, 3, 4)], ("cubic", 2): [(0, 1)], ("cubic", 4): [(2, 3)],
}  # fmt: skip
MOST_ELEMENTS = 240


@dataclass(frozen=True)
class Resizing:
    """One node; `scales` and `sizes` are those of `axes`, the axes that it names or all of them."""

    shape: tuple[int, ...]
    opset: int
    scales: tuple[float, ...] | None = None
    sizes: tuple[int, ...] | None = None
    roi: tuple[float, ...] | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    symbolic: bool = False
    computed: bool = False

    @property
    def op(self) -> str:
        return "Upsample" if self.opset < 10 else "Resize"

    @property
    def axes(self) -> list[int]:
        """The axes that scales and sizes are of."""
        rank = len(self.shape)
        return [a % rank for a in self.attributes.get("axes", range(rank))]

    @property
    def mode(self) -> str:
        return str(self.attributes.get("mode", "nearest"))

    @property
    def coordinates(self) -> str:
        default = "half_pixel" if self.opset > 10 else "asymmetric"
        return str(self.attributes.get("coordinate_transformation_mode", default))


def draw(rng: np.random.Generator) -> Resizing:
    """A node of any kind; nine of ten are such that onnxruntime takes them."""
    opset = int(rng.choice(OPSETS, p=[0.02, 0.01, 0.02, 0.02, 0.05, 0.05, 0.23, 0.35, 0.25]))
    mode = str(rng.choice(["nearest", "linear", "cubic"] if opset > 10 else ["nearest", "linear"]))
    shape, chosen = _shape(rng, mode)
    attributes: dict[str, Any] = {"mode": mode}
    if opset > 10:
        attributes |= _attributes(rng, mode, opset)
    named = list(range(len(shape)))
    if opset >= 18 and rng.random() < 0.4:
        named = [int(a) for a in rng.permutation(chosen)]
        attributes["axes"] = [a - len(shape) if rng.random() < 0.1 else a for a in named]
    crops = attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    roi = _roi(rng, named, chosen) if crops else None
    flags = {"symbolic": rng.random() < 0.4, "computed": rng.random() < 0.25}
    if opset > 10 and rng.random() < 0.45:
        sizes = tuple(_size(rng, shape[a]) if a in chosen else shape[a] for a in named)
        if "axes" in attributes and rng.random() < 0.35:
            attributes["keep_aspect_ratio_policy"] = str(rng.choice(["not_larger", "not_smaller"]))
        return Resizing(shape, opset, None, sizes, roi, attributes, **flags)
    up = opset < 10
    scales = tuple(_scale(rng, shape[a], up=up) if a in chosen else 1.0 for a in named)
    flags["computed"] &= opset > 8
    return Resizing(shape, opset, scales, None, roi, attributes, **flags)


def _shape(rng: np.random.Generator, mode: str) -> tuple[tuple[int, ...], list[int]]:
    """A shape, and the axes that are resized."""
    rank = int(rng.choice([1, 2, 3, 4, 5], p=[0.1, 0.2, 0.15, 0.4, 0.15]))
    kinds = SUPPORTED.get((mode, rank), [])
    if kinds and rng.random() < 0.95:
        chosen = list(kinds[rng.integers(len(kinds))])
    elif mode != "nearest" and rng.random() < 0.8:
        return _shape(rng, mode)
    else:
        chosen = [a for a in range(rank) if rng.random() < 0.6] or [rank - 1]
    while True:
        shape = tuple(int(rng.integers(1, 10 if a in chosen else 3)) for a in range(rank))
        if math.prod(shape) <= MOST_ELEMENTS:
            return shape, chosen


def _attributes(rng: np.random.Generator, mode: str, opset: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    names = [name for name, since in COORDINATES.items() if opset >= since]
    if rng.random() < 0.9:
        found["coordinate_transformation_mode"] = str(rng.choice(names))
    if opset < 13 and mode == "nearest" and rng.random() < 0.15:
        return {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}
    if mode == "nearest" and rng.random() < 0.85:
        found["nearest_mode"] = str(rng.choice(ROUNDINGS))
    if mode != "nearest" and opset >= 18 and rng.random() < 0.3:
        found["antialias"] = 1
    if (mode == "cubic" or found.get("antialias")) and rng.random() < 0.3:
        found["exclude_outside"] = 1
    if mode == "cubic" and rng.random() < 0.5:
        found["cubic_coeff_a"] = float(rng.choice([-0.5, -0.6, -1.0]))
    if found.get("coordinate_transformation_mode") == "tf_crop_and_resize" and rng.random() < 0.7:
        found["extrapolation_value"] = float(rng.choice([1.5, -10.0]))
    return found


def _roi(rng: np.random.Generator, named: list[int], chosen: list[int]) -> tuple[float, ...]:
    start = {a: round(float(rng.uniform(-0.2, 0.4)), 2) for a in chosen}
    end = {a: round(float(rng.uniform(0.6, 1.2)), 2) for a in chosen}
    return (*(start.get(a, 0.0) for a in named), *(end.get(a, 1.0) for a in named))


def _size(rng: np.random.Generator, have: int) -> int:
    kind = rng.random()
    if kind < 0.15:
        return have
    if kind < 0.3:
        return have * int(rng.integers(2, 4))
    return 1 if kind < 0.4 else int(rng.integers(1, 2 * have + 3))


def _scale(rng: np.random.Generator, have: int, *, up: bool) -> float:
    while True:
        scale = float(rng.choice(SCALES)) if rng.random() < 0.7 else float(rng.uniform(0.2, 3))
        scale = 1.0 if rng.random() < 0.1 else scale
        if (int(have * scale) or rng.random() < 0.05) and (scale >= 1 or not up):
            return scale


def model_of(case: Resizing) -> onnx.ModelProto:
    """`y = Resize(x)` and `loss = Σ c · y`; with `computed`, scales, sizes and roi depend on x."""
    attributes = dict(case.attributes)
    if case.opset < 9:
        attributes["scales"] = list(case.scales or ())
    given = _vectors(case)
    names = [name if name in given else "" for name in _slots(case.opset)]
    while names and not names[-1]:
        names.pop()
    held = []
    nodes: list[onnx.NodeProto] = []
    for name, values in given.items():
        computed = case.computed and values.size
        held.append(numpy_helper.from_array(values, f"{name}/known" if computed else name))
        nodes += _computed(name, values.dtype) if computed else []
    nodes += [
        helper.make_node(case.op, ["x", *names], ["y"], "node", **attributes),
        helper.make_node("Mul", ["y", "c"], ["weighted"]),
        helper.make_node("ReduceSum", ["weighted"], ["loss"], keepdims=0),
    ]
    shape = [f"d{a}" if case.symbolic else n for a, n in enumerate(case.shape)]
    wanted = [f"e{a}" for a in range(len(shape))]
    typed = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "resize",
        [typed("x", TensorProto.FLOAT, shape), typed("c", TensorProto.FLOAT, wanted)],
        [typed("y", TensorProto.FLOAT, wanted), typed("loss", TensorProto.FLOAT, [])],
        held,
    )
    opset = [helper.make_opsetid("", case.opset)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


def _slots(opset: int) -> list[str]:
    """What the inputs behind x are."""
    if opset < 9:
        return []
    return ["scales"] if opset < 11 else ["roi", "scales", "sizes"]


def _vectors(case: Resizing) -> dict[str, np.ndarray[Any, Any]]:
    """The inputs behind x; at opsets 11 and 12 an absent one is an empty vector."""
    values = {"roi": case.roi, "scales": case.scales, "sizes": case.sizes}
    needed = {11: ("roi", "scales")}.get(case.opset, ())
    return {
        name: np.asarray(values[name] or (), np.int64 if name == "sizes" else np.float32)
        for name in _slots(case.opset)
        if values[name] is not None or name in needed
    }


def _computed(name: str, dtype: Any) -> list[onnx.NodeProto]:
    """`name/known` times one, which depends on x, as nothing that folds constants can see."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return [
        helper.make_node("Shape", ["x"], [f"{name}/shape"]),
        helper.make_node("Cast", [f"{name}/shape"], [f"{name}/cast"], to=kind),
        helper.make_node("ReduceMax", [f"{name}/cast"], [f"{name}/most"], keepdims=0),
        helper.make_node("Div", [f"{name}/most", f"{name}/most"], [f"{name}/one"]),
        helper.make_node("Mul", [f"{name}/known", f"{name}/one"], [name]),
    ]
