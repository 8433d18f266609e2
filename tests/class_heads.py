"""Random linear layers of many classes with a cross-entropy, as exporters and `--loss` write them.

Drawn are sizes and ranks, how W lies and what product reads it, bias, scale, soft cap and cast,
whether W is an embedding too, and the loss: one of the file or of `--loss` with its settings.  Of
few bits W is in a `MatMulNBits`, or as the numbers that it stands for where floats are of 64 bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FORMS = {
    "product": ("MatMul", "Transpose", "Gemm", "Gemm of C, K"),
    "bias": (False, True),
    "adapter": (False, False, True),
    "scale": ("", "Mul", "Div"),
    "cap": (0.0, 1.5),
    "tied": (False, False, True),
    "places": (False, True),
    "loss": ("ce", "ce", "sum", "mean", "second", "log"),
    "ignore": (None, None, -100, 2),
    "weight": (False, True),
    "smoothing": (0.0, 0.1),
    "shift": (0, 1),
    "counts": ("", "", "examples", "mask"),
}
FEW_BITS = {
    "bits": (2, 4, 8),
    "zero": ("", "bytes", "floats"),
    "groups": (False, True),
    "opset": (18, 21),
}
BATCH, PLACES, WIDTH, CLASSES = 3, 4, 5, 11
BLOCK = 16
KINDS = {np.float64: TensorProto.DOUBLE, np.float32: TensorProto.FLOAT}


@dataclass
class Drawn:
    """A model, its inputs, what `--loss` appends to it, and what was drawn."""

    form: dict[str, Any]
    dtype: type
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)

    def emit(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], f"n_{name}", **attributes))
        return name

    def constant(self, name: str, array: Any) -> str:
        array = np.asarray(array)
        self.weights[name] = array.astype(self.dtype) if array.dtype.kind == "f" else array
        return name

    @property
    def loss(self) -> str:
        """What `--loss` takes."""
        if self.form["loss"] != "ce":
            return "loss"
        named = {key: self.form[key] for key in ("ignore", "smoothing", "shift")}
        given = {key: value for key, value in named.items() if value}
        if self.form["weight"]:
            given["weight"] = "shares"
        if self.form["counts"]:
            given[self.form["counts"]] = "counting"
        said = ",".join(f"{key}={value}" for key, value in given.items())
        return f"ce:logits@{said}" if said else "ce:logits"

    @property
    def width(self) -> int:
        """The numbers of a row: more than one block, where W is of few bits."""
        return 2 * BLOCK + WIDTH if "bits" in self.form else WIDTH

    @property
    def lead(self) -> list[int]:
        """The sizes of the rows."""
        return [BATCH, PLACES] if self.form["places"] else [BATCH]


def draw_few_bits(seed: int, dtype: type = np.float32) -> tuple[Drawn, onnx.ModelProto]:
    """A drawn case of a W of few bits, and its model."""
    rng = np.random.default_rng(seed)
    few = {key: values[rng.integers(len(values))] for key, values in FEW_BITS.items()}
    if few["bits"] == 8 and few["zero"] == "floats":
        few["zero"] = "bytes"
    return draw(seed, dtype, product="MatMulNBits", tied=False, **few)


def draw(seed: int, dtype: type = np.float64, **fixed: Any) -> tuple[Drawn, onnx.ModelProto]:
    """A drawn case and its model."""
    rng = np.random.default_rng(seed)
    form = {key: values[rng.integers(len(values))] for key, values in FORMS.items()} | fixed
    if not form["places"] or form["counts"]:
        form["shift"] = 0
    made = Drawn(form, dtype)
    logits = _layer(made, rng)
    labels = rng.integers(0, CLASSES, made.lead)
    if form["ignore"] is not None:
        labels[rng.random(labels.shape) < 0.3] = form["ignore"]
    made.feeds["labels"] = labels
    made.constant("shares", rng.uniform(0.3, 2, CLASSES))
    if form["loss"] != "ce":
        _of_file(made, logits)
    elif form["counts"]:
        sizes = made.lead if form["counts"] == "mask" else made.lead[:1]
        made.feeds["counting"] = rng.uniform(0.2, 1, sizes).astype(dtype)
    return made, _model(made, logits)


def _layer(made: Drawn, rng: np.random.Generator) -> str:
    """Scores `logits` of rows `x`."""
    form, turned = made.form, made.form["product"] in ("Transpose", "Gemm of C, K")
    matrix = _few_bits(made, rng) if "bits" in form else ()
    if not matrix:
        w = rng.normal(size=(CLASSES, WIDTH))
        made.constant("w", w if turned else w.T)
    x = _rows(made, rng, turned=turned)
    c = made.constant("bias", rng.normal(size=CLASSES))
    if form["product"].startswith("Gemm"):
        flat = made.emit("Reshape", x, made.constant("flat", np.array([-1, made.width])))
        bias = [c] if form["bias"] else []
        y = made.emit("Gemm", flat, "w", *bias, alpha=0.5, beta=2.0, transB=int(turned))
        y = made.emit("Reshape", y, made.constant("back", np.array([*made.lead, CLASSES])))
    else:
        w = made.emit("Transpose", "w", perm=[1, 0]) if turned else "w"
        y = _product(made, x, matrix) if len(matrix) > 1 else made.emit("MatMul", x, w)
        y = made.emit("Add", y, c) if form["bias"] and form["places"] else y
        if form["adapter"]:
            low = made.emit("MatMul", x, made.constant("low", rng.normal(size=(made.width, 2))))
            up = made.constant("up", rng.normal(size=(2, CLASSES)))
            y = made.emit("Add", y, made.emit("MatMul", low, up))
        y = made.emit("Add", y, c) if form["bias"] and not form["places"] else y
    if form["scale"]:
        y = made.emit(form["scale"], y, made.constant("scale", 0.7))
    if form["cap"]:
        cap = made.constant("cap", form["cap"])
        y = made.emit("Mul", made.emit("Tanh", made.emit("Div", y, cap)), cap)
    made.nodes[-1].output[0] = "logits"
    return "logits"


def _few_bits(made: Drawn, rng: np.random.Generator) -> tuple[str, ...]:
    """Names of W: of its codes, scale, zero and groups, or of its numbers."""
    bits, width = made.form["bits"], made.width
    blocks, most = -(-width // BLOCK), 2**bits
    codes = rng.integers(0, most, (CLASSES, blocks * BLOCK))
    scale = (rng.uniform(1, 4, (CLASSES, blocks)) / most).astype(np.float32)
    zero = rng.integers(0, most, (CLASSES, blocks))
    groups = np.arange(width) // BLOCK
    if made.form["groups"]:
        groups = rng.permutation(groups)
    if made.dtype == np.float64:
        offset = zero[:, groups] if made.form["zero"] else most // 2
        w = (codes[:, :width] - offset) * scale.astype(np.float64)[:, groups]
        return (made.constant("w", w.T),)
    held = [made.constant("codes", _packed(codes, bits).reshape(CLASSES, blocks, -1))]
    held.append(made.constant("steps", scale))
    zeros = {"bytes": _packed(zero, bits), "floats": zero.astype(np.float32), "": None}
    zero = zeros[made.form["zero"]]
    held.append("" if zero is None else made.constant("zeros", zero))
    if made.form["groups"]:
        held.append(made.constant("groups", groups.astype(np.int32)))
    return tuple(held)


def _packed(codes: np.ndarray, bits: int) -> np.ndarray:
    each = 8 // bits
    codes = np.pad(codes, ((0, 0), (0, -codes.shape[1] % each)))
    parts = codes.reshape(len(codes), -1, each) << np.arange(0, 8, bits)
    return parts.sum(-1).astype(np.uint8)


def _product(made: Drawn, x: str, matrix: tuple[str, ...]) -> str:
    return made.emit(
        "MatMulNBits", x, *matrix, domain="com.microsoft", K=made.width, N=CLASSES,
        bits=made.form["bits"], block_size=BLOCK,
    )  # fmt: skip


def _rows(made: Drawn, rng: np.random.Generator, *, turned: bool) -> str:
    made.constant("gain", rng.normal(size=made.width))
    if made.form["tied"] and turned:
        made.feeds["tokens"] = rng.integers(0, CLASSES, made.lead)
        return made.emit("Mul", made.emit("Gather", "w", "tokens"), "gain")
    made.feeds["x"] = rng.normal(size=[*made.lead, made.width]).astype(made.dtype)
    return made.emit("Mul", "x", "gain")


def _of_file(made: Drawn, logits: str) -> None:
    """A loss that the file has."""
    form, given = made.form, {}
    if form["ignore"] is not None:
        given["ignore_index"] = form["ignore"]
    shares = ["shares"] if form["weight"] else []
    reduction = "sum" if form["loss"] == "sum" else "mean"
    labels = "labels"
    if form["loss"] == "second" and form["places"]:
        logits = made.emit("Transpose", logits, perm=[0, 2, 1])
    else:
        logits = made.emit("Reshape", logits, made.constant("two", np.array([-1, CLASSES])))
        labels = made.emit("Reshape", labels, made.constant("one", np.array([-1])))
    op = "SoftmaxCrossEntropyLoss"
    if form["loss"] == "log":
        logits, op = made.emit("LogSoftmax", logits, axis=1), "NegativeLogLikelihoodLoss"
    made.emit(op, logits, labels, *shares, reduction=reduction, **given)
    made.nodes[-1].output[0] = "loss"


def _model(made: Drawn, logits: str) -> onnx.ModelProto:
    kind = KINDS[made.dtype]
    kinds = {n: kind if a.dtype.kind == "f" else TensorProto.INT64 for n, a in made.feeds.items()}
    own = made.form["loss"] != "ce"
    inputs = [
        helper.make_tensor_value_info(name, kinds[name], list(array.shape))
        for name, array in made.feeds.items()
        if own or name in ("x", "tokens")
    ]
    outputs = [helper.make_tensor_value_info("loss", kind, [])] if own else []
    if not own:
        outputs = [helper.make_tensor_value_info(logits, kind, [*made.lead, CLASSES])]
    read = {name for node in made.nodes for name in node.input} | {"shares"}
    weights = [numpy_helper.from_array(a, n) for n, a in made.weights.items() if n in read]
    graph = helper.make_graph(made.nodes, "head", inputs, outputs, weights)
    opsets = {"": made.form.get("opset", 20), "com.microsoft": 1}
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return helper.make_model(graph, ir_version=10, opset_imports=imports)
