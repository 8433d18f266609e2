"""Random attention in plain operators, as exporters write it.

Each draw is a model of inputs q, k, v and masks, whose loss is a weighted sum of the result.
Drawn are sizes, ranks and heads, how the scores are scaled, how Kᵀ comes about, the masks and
their order, heads of keys that several of queries share, whether batch and heads are one axis
and apart for the masks, and what stands between softmax and V.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZES = {"b": (1, 3), "g": (1, 3), "n": (2, 3), "s": (2, 7), "t": (2, 7), "d": (1, 4), "e": (1, 4)}
FORMS = {
    "scale": ("none", "scores", "divided", "queries", "keys", "roots"),
    "turn": ("last", "whole", "reshaped"),
    "between": ("", "Identity", "Dropout", "safe"),
    "shared": ("", "", "Expand", "Concat"),
    "flat": (False, False, True),
    "apart": (False, True),
    "open_batch": (False, True),
    "opset": (18, 20, 21, 23),
}
MASKS = ("added", "kept", "hidden", "lowest", "causal", "causal flags")


@dataclass
class Attention:
    """A model, inputs for it, and what was drawn."""

    dtype: type
    drawn: dict[str, Any]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def fits(self) -> bool:
        """Whether it is one attention to us: what masks put in is one number."""
        kinds = {*self.drawn["masks"]} - {"added", "causal"}
        fills = {kind == "lowest" for kind in kinds}
        return len(fills) < 2

    def emit(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"{op.lower()}_{len(self.nodes)}"
        outputs = [name, f"{name}_mask"][: 2 if op == "Dropout" else 1]
        self.nodes.append(helper.make_node(op, inputs, outputs, f"n_{name}", **attributes))
        return name

    def constant(self, array: object) -> str:
        array = np.asarray(array)
        array = array.astype(self.dtype) if array.dtype.kind == "f" else array
        name = f"c{len(self.weights)}"
        self.weights[name] = array
        return name

    def feed(self, name: str, array: np.ndarray) -> str:
        array = array if array.dtype == bool else array.astype(self.dtype)
        sizes: list[int | str] = list(array.shape)
        if self.drawn["open_batch"] and len(sizes) == self.drawn["rank"] and sizes[0] != 1:
            sizes[0] = "batch"
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, kind, sizes))
        self.feeds[name] = array
        return name

    def model(self, loss: str, opset: int) -> onnx.ModelProto:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        out = helper.make_tensor_value_info(loss, kind, [])
        weights = [numpy_helper.from_array(a, n) for n, a in self.weights.items()]
        graph = helper.make_graph(self.nodes, "attention", self.inputs, [out], weights)
        version = [helper.make_opsetid("", opset)]
        return helper.make_model(graph, opset_imports=version, ir_version=10)


def draw(seed: int, dtype: type = np.float64, **given: object) -> tuple[Attention, onnx.ModelProto]:
    """A model by a seed; `given` says what is not to be drawn."""
    rng = np.random.default_rng(seed)
    drawn = _drawn(rng, given)
    made = Attention(dtype, drawn)
    lead, shared, between = (drawn[name] for name in ("lead", "shared", "between"))
    b, g, n, s, t, d, e = (drawn[name] for name in SIZES)

    keys = (b, g) if shared else lead
    q, k, v = (
        made.feed(name, rng.standard_normal(shape))
        for name, shape in (("q", (*lead, s, d)), ("k", (*keys, t, d)), ("v", (*keys, t, e)))
    )
    if shared:
        k, v = (_repeated(made, x, (b, g, n, t, w), shared) for x, w in ((k, d), (v, e)))
    scores = _scores(made, q, k, (*lead, t, d), made.constant(float(rng.uniform(0.2, 1.5))))
    if drawn["apart"]:
        scores = made.emit("Reshape", scores, made.constant([b, g, s, t]))
    for index, kind in enumerate(drawn["masks"]):
        sizes = ((b, g) if drawn["apart"] else lead) + (s, t)
        scores = _masked(made, scores, sizes, kind, f"m{index}", rng)
    if drawn["apart"]:
        scores = made.emit("Reshape", scores, made.constant([*lead, s, t]))
    p = made.emit("Softmax", scores, axis=-1)
    if between == "safe":
        p = made.emit("Where", made.emit("IsNaN", p), made.constant(0.0), p)
    elif between:
        p = made.emit(between, p)
    y = made.emit("MatMul", p, v)
    weighted = made.emit("Mul", y, made.constant(rng.standard_normal((*lead[1:], s, e))))
    return made, made.model(made.emit("ReduceSum", weighted, keepdims=0), drawn["opset"])


def _drawn(rng: np.random.Generator, given: dict[str, Any]) -> dict[str, Any]:
    """What a model is like: its sizes, and the forms that it has."""

    def some(low: int, high: int) -> int:
        return int(rng.integers(low, high + 1))

    drawn = {name: some(*ends) for name, ends in SIZES.items()}
    drawn |= {name: forms[some(0, len(forms) - 1)] for name, forms in FORMS.items()}
    drawn["masks"] = [MASKS[some(0, len(MASKS) - 1)] for _ in range(some(0, 2))]
    drawn |= given
    shared = drawn["shared"]
    drawn["flat"] = drawn["flat"] and not shared
    heads = drawn["g"] * drawn["n"] if shared else drawn["g"]
    drawn["apart"] = drawn["apart"] and drawn["flat"]
    joined = drawn["b"] * heads if drawn["apart"] else heads
    drawn["lead"] = (joined,) if drawn["flat"] else (drawn["b"], heads)
    drawn["rank"] = len(drawn["lead"]) + 2
    known = drawn["turn"] == "reshaped" or drawn["apart"] or shared or drawn["lead"][0] == 1
    drawn["open_batch"] = drawn["open_batch"] and not known
    return drawn


def _scores(made: Attention, q: str, k: str, keys: tuple[int, ...], factor: str) -> str:
    """`Q Kᵀ` with a factor, wherever it stands."""
    scale = made.drawn["scale"]
    if scale in ("queries", "roots"):
        q = made.emit("Mul", q, factor)
    turned = _turned(made, k, keys, made.drawn["turn"])
    if scale in ("keys", "roots"):
        turned = made.emit("Mul", factor, turned)
    scores = made.emit("MatMul", q, turned)
    if scale in ("scores", "divided"):
        scores = made.emit("Mul" if scale == "scores" else "Div", scores, factor)
    return scores


def _repeated(made: Attention, x: str, sizes: tuple[int, ...], how: str) -> str:
    """[B, G, T, D] → [B, G · n, T, D]."""
    b, g, n, t, d = sizes
    one = made.emit("Unsqueeze", x, made.constant([2]))
    many = (
        made.emit("Expand", one, made.constant([b, g, n, t, d]))
        if how == "Expand" else made.emit("Concat", *[one] * n, axis=2)
    )  # fmt: skip
    return made.emit("Reshape", many, made.constant([b, g * n, t, d]))


def _turned(made: Attention, k: str, sizes: tuple[int, ...], how: str) -> str:
    """[..., T, D] → [..., D, T], by a Transpose, by one on top of another, or among reshapes."""
    rank = len(sizes)
    *lead, t, d = sizes
    swap = [*range(rank - 2), rank - 1, rank - 2]
    if how == "whole":
        first = [rank - 2, *range(rank - 2), rank - 1]  # time first
        k = made.emit("Transpose", k, perm=first)
        return made.emit("Transpose", k, perm=[*range(1, rank - 1), rank - 1, 0])
    if how == "reshaped":
        k = made.emit("Reshape", k, made.constant([int(np.prod(lead)), t, d]))
        k = made.emit("Transpose", k, perm=[0, 2, 1])
        return made.emit("Reshape", k, made.constant([*lead, d, t]))
    return made.emit("Transpose", k, perm=swap)


def _masked(
    made: Attention, scores: str, sizes: tuple[int, ...], kind: str, name: str,
    rng: np.random.Generator,
) -> str:  # fmt: skip
    """A mask of a size of one, or no axis, wherever it is broadcast."""
    shape = [1 if rng.random() < 0.4 else n for n in sizes[:-1]] + [sizes[-1]]
    shape = shape[int(rng.integers(0, len(sizes) - 1)) if rng.random() < 0.4 else 0 :]
    if kind.startswith("causal"):
        seen = np.tril(np.ones(sizes[-2:], bool))
        if kind == "causal":
            known = np.where(seen, 0.0, -np.inf).astype(made.dtype)  # a weight would be trained
            mask = made.emit("Constant", value=numpy_helper.from_array(known))
            return made.emit("Add", scores, mask)
        return made.emit("Where", made.constant(seen), scores, made.constant(-np.inf))
    if kind == "added":
        mask = made.feed(name, rng.standard_normal(shape))
        pair = (scores, mask) if rng.random() < 0.5 else (mask, scores)
        return made.emit("Add", *pair)
    kept = rng.random(shape) < 0.6
    kept[..., 0] = True
    if kind == "hidden":
        mask = made.feed(name, ~kept)
        return made.emit("Where", mask, made.constant(-np.inf), scores)
    mask = made.feed(name, kept)
    fill = -np.inf if kind == "kept" else -10000.0
    return made.emit("Where", mask, scores, made.constant(fill))


def floats(made: Attention) -> list[str]:
    """The inputs that have a gradient."""
    kinds = (TensorProto.FLOAT, TensorProto.DOUBLE)
    return [i.name for i in made.inputs if i.type.tensor_type.elem_type in kinds]
