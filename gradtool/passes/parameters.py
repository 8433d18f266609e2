"""Roles of the tensors that a model came with: the one classification for selectors.

An exporter's word decides.  Without it, a float tensor is a parameter, but one of a single element
only where a layer has its weight, bias or gain, and never without an axis: exporters write scales,
exponents and epsilons as tensors too.  A tensor that begins like a mask, with infinities or the
least number of its type, is none either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum

import numpy as np
import onnx_ir as ir

from gradtool.graph.metadata import LITERAL, notes
from gradtool.graph.predicates import is_float, is_scalar, is_tensor
from gradtool.graph.tensors import flat
from gradtool.losses.output_heads import LAYOUTS, PRODUCTS
from gradtool.passes.provenance import KIND, role
from gradtool.text.words import some


class Role(Enum):
    """The role of a tensor or an input in the model, and whether selectors may take it.

    A glob takes `open` roles, a full name also `named` ones; the value is a phrase for people.
    """

    PARAMETER = "a parameter"
    INPUT = "an input"
    NUMBER = "a scalar constant"
    BUFFER = "a buffer"
    SCALE = "a quantisation scale"
    STATISTIC = "a running statistic: batches move it under --train-mode, no gradient does"
    MASK = "a mask: it decides what attention passes, and is not trained"
    ZERO_POINT = "a zero point of a quantisation: it has no gradient"
    CODES = "quantised: codes have no gradient, their scale has"
    SETTING = "a setting of its operator: it has no gradient"
    WEIGHING = "weights of classes: they are part of the loss"
    INTEGER = "no float: only floats have gradients"

    @property
    def is_open(self) -> bool:
        """Whether a glob may take it."""
        return self in (Role.PARAMETER, Role.INPUT, Role.NUMBER)

    @property
    def is_named(self) -> bool:
        """Whether its full name may stand in a selector."""
        return self.is_open or self in (Role.BUFFER, Role.SCALE, Role.WEIGHING)

    def said(self, value: ir.Value) -> str:
        """The phrase, with the type of a non-float."""
        if self is Role.INTEGER:
            kind = value.dtype if is_tensor(value) else value.type
            return f"{kind}: only floats have gradients"
        return str(self.value)

    def brief(self, value: ir.Value) -> str:
        """The phrase without its reason."""
        return self.said(value).partition(":")[0]


Roles = Mapping[ir.Value, Role]


def roles_of(graph: ir.Graph, leaves: Iterable[ir.Value]) -> dict[ir.Value, Role]:
    """Classify the initializers and inputs that a graph came with, by their readers."""
    written = {v.name or "" for node in graph for v in node.outputs}
    return {value: _role(value, written) for value in leaves}


def _role(value: ir.Value, written: set[str]) -> Role:
    if not is_float(value) or not is_tensor(value):
        return Role.INTEGER
    if not value.is_initializer():
        return Role.INPUT
    noted = (role for key, role in _NOTED.items() if key in value.meta)
    place = next(noted, None) or _place(value)
    if place is not None:
        return place
    said = role(value, written)
    if said is None:
        if is_scalar(value):
            trained = len(value.shape or ()) > 0 and _is_of_a_layer(value)
        else:
            trained = LITERAL not in notes(value)
        if trained and _is_mask(value):
            return Role.MASK
        said = "parameter" if trained else "constant"
    if said == "parameter":
        return Role.PARAMETER
    # A number that a node of the file wrote out is as little a parameter as a buffer is.
    return Role.NUMBER if is_scalar(value) and LITERAL not in notes(value) else Role.BUFFER


def among(roles: Roles, *wanted: Role) -> list[ir.Value]:
    """The values of some roles, in their order."""
    return [value for value, found in roles.items() if found in wanted]


def scalars(roles: Roles, trained: Iterable[ir.Value]) -> list[ir.Value]:
    """Frozen parameters and statistics of one element, of which others would be constants."""
    kept, trained = among(roles, Role.PARAMETER, Role.STATISTIC), set(trained)
    return [v for v in kept if is_scalar(v) and v not in trained and v.is_initializer()]


def untrained(roles: Roles, reaches: Iterable[ir.Value]) -> list[str]:
    """Warnings about the constants that the loss depends on."""
    there = set(reaches)

    def names(values: Iterable[ir.Value]) -> str:
        return some((v.name or "" for v in values if v in there), most=20)

    said = []
    numbers = names(among(roles, Role.NUMBER))
    lone = names(v for v in among(roles, Role.PARAMETER) if is_scalar(v))
    buffers = names(v for v in among(roles, Role.BUFFER) if KIND in v.metadata_props)
    masks = names(among(roles, Role.MASK))
    if numbers:
        trained = f"; trained, as parts of layers: {lone}" if lone else ""
        said.append(
            f"scalar initializers are not trained; --wrt NAME trains them: {numbers}{trained}"
        )
    if buffers:
        said.append(f"buffers are not trained; --wrt NAME trains them: {buffers}")
    if masks:
        said.append(f"masks are not trained: {masks}")
    return said


def _is_mask(value: ir.Value) -> bool:
    """Whether a tensor lets attention pass some scores and no others, as far as its first rows say.

    A mask has rows in which some elements are masked and others not, and these are few numbers: 0,
    or a function of the distance.  A table of which a whole row is -∞ is none, nor is the weight of
    a layer.  Rows are looked at and not the whole: weights may be large, and in another file.
    """
    tensor, shape = value.const_value, value.shape
    if tensor is None or shape is None or len(shape) < 2 or getattr(tensor, "absent", False):
        return False
    sizes = [size for size in tensor.shape.numpy() if size != 1] or [1]
    if 0 in sizes:
        return False
    count = max(_LOOKED_AT // sizes[-1], _ROWS) * sizes[-1]
    rows = flat(tensor, 0, count).reshape(-1, sizes[-1])
    first = rows[:, :: -(-sizes[-1] // _LOOKED_AT)]
    first = first if first.dtype.kind == "f" else first.astype(np.float32)  # bfloat16 and smaller
    masked = first <= max(_MASKED, float(np.finfo(first.dtype).min))
    if not masked.any() or _is_weight(value):
        return False
    passed = first[~masked]
    few = 2 * len(np.unique(passed)) <= len(passed) or not passed.any()
    return few and bool((masked.any(1) & ~masked.all(1)).any() or masked.all())


_LOOKED_AT = 4_096  # elements of a tensor
_ROWS = 4  # of it, where they are longer
_MASKED = -1e9  # or less, or the least number of the type

# --------------------------------------------------------------------------------- places

# In the meta of a tensor: a scale of integers; the cosines or sines of positions.
SCALE, ANGLES = "gradtool.scale", "gradtool.angles"
_NOTED = {SCALE: Role.SCALE, ANGLES: Role.BUFFER}
_QUANTISED = {1: Role.SCALE, 2: Role.ZERO_POINT}
_RUNNING = {3: Role.STATISTIC, 4: Role.STATISTIC}
_PLACES: Mapping[str, Mapping[int, Role]] = {
    "BatchNormalization": _RUNNING,
    "BatchNormalizationTraining": _RUNNING,
    "Dropout": {1: Role.SETTING},
    "DropoutMask": {1: Role.SETTING},
    "QuantizeLinear": _QUANTISED,
    "DequantizeLinear": {0: Role.CODES, **_QUANTISED},
    "FakeQuantize": _QUANTISED,
    "QuantizedMatMul": {2: Role.SCALE, 3: Role.ZERO_POINT},
    "QLinearMatMul": dict.fromkeys((1, 4, 6), Role.SCALE),
    "QLinearConv": dict.fromkeys((1, 4, 6), Role.SCALE),
    "RotaryEmbedding": dict.fromkeys((1, 2), Role.BUFFER),
    "Resize": dict.fromkeys((1, 2, 3), Role.SETTING),
    "NonMaxSuppression": {3: Role.SETTING, 4: Role.SETTING},
    "SoftmaxCrossEntropyLoss": {2: Role.WEIGHING},
    "NegativeLogLikelihoodLoss": {2: Role.WEIGHING},
    "LinearCrossEntropy": {4: Role.WEIGHING, 7: Role.SCALE, 8: Role.ZERO_POINT},
}
_LAYERS: Mapping[str, tuple[int, ...]] = {
    "Gemm": (0, 1, 2),
    "MatMul": (0, 1),
    "LinearCrossEntropy": (2, 3),
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "DeformConv": (1, 3),
    "Einsum": (0, 1, 2),
    "PRelu": (1,),
    "BatchNormalization": (1, 2),
    "BatchNormalizationTraining": (1, 2),
    "InstanceNormalization": (1, 2),
    "LayerNormalization": (1, 2),
    "GroupNormalization": (1, 2),
    "RMSNormalization": (1,),
    "LSTM": (1, 2, 3, 7),
    "GRU": (1, 2, 3),
    "RNN": (1, 2, 3),
}
_NORMS = ("BatchNormalization", "InstanceNormalization", "LayerNormalization",
          "GroupNormalization", "RMSNormalization", "LpNormalization", "MeanVarianceNormalization",
          "BatchNormalizationTraining")  # fmt: skip


def _place(value: ir.Value) -> Role | None:
    """The role of a tensor common to all its readers: a statistic, a scale or a setting."""
    found = [_PLACES.get(node.op_type, {}).get(slot) for node, slot in _readers(value)]
    return found[0] if found and None not in found else None


def _readers(value: ir.Value) -> Iterator[tuple[ir.Node, int]]:
    """The readers of a tensor, and their slots, behind its layouts."""
    waiting = [value]
    while waiting:
        for use in waiting.pop().uses():
            if use.node.op_type in (*LAYOUTS, "Expand") and use.idx == 0:
                waiting.append(use.node.outputs[0])
            else:
                yield use.node, use.idx


def _is_weight(value: ir.Value) -> bool:
    """Whether a layer reads it in a place of its own; a summand of a product may be a mask."""
    return any(slot in _LAYERS.get(node.op_type, ()) for node, slot in _readers(value))


def _is_of_a_layer(value: ir.Value) -> bool:
    """Whether a layer reads it as weight, bias or gain, perhaps laid out in another way first."""
    return _is_weight(value) or any(_is_bias_or_gain(*use) for use in _readers(value))


def _is_bias_or_gain(node: ir.Node, slot: int) -> bool:
    """Whether a node adds an input to a product, or scales or shifts a normalised value by it."""
    if node.op_type not in ("Add", "Mul"):
        return False
    other = _behind(node.inputs[1 - slot])
    if other is None:
        return False
    if node.op_type == "Add" and other.op_type == "Mul":  # the bias behind the gain of a norm
        return any(_is_norm(_behind(v)) for v in other.inputs)
    return _is_norm(other) or (node.op_type == "Add" and other.op_type in PRODUCTS)


def _is_norm(node: ir.Node | None) -> bool:
    return node is not None and node.op_type in _NORMS


def _behind(value: ir.Value | None) -> ir.Node | None:
    """The producer of a value, layouts left out."""
    node = value.producer() if value is not None else None
    while node is not None and node.op_type in LAYOUTS:
        value = node.inputs[0]
        node = value.producer() if value is not None else None
    return node
