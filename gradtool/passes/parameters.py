"""Which initializers are parameters, as far as a file tells.

What an exporter says decides.  Where it says nothing, a float tensor is a parameter, but one of a
single element only where a layer has its weight, bias or gain, and never without an axis:
exporters write scales, exponents and epsilons as tensors too.  What begins like a mask, with
infinities or the least number of its type, is none either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from gradtool import io
from gradtool.graph.predicates import is_float, is_scalar
from gradtool.losses.endings import LAYOUTS, PRODUCTS
from gradtool.losses.settings import CLASS_WEIGHTS
from gradtool.passes.provenance import KIND, role
from gradtool.text.words import some


@dataclass(frozen=True)
class Parameters:
    """The parameters among some values, and the tensors that are constants though they are floats.

    `numbers` are constants of one element, `buffers` those of more that the exporter called so,
    `masks` those that nobody calls anything.  Running statistics, quantisation scales and ratios
    are neither.
    """

    values: tuple[ir.Value, ...]
    numbers: tuple[ir.Value, ...]
    buffers: tuple[ir.Value, ...]
    masks: tuple[ir.Value, ...] = ()

    def warnings(self, reaches: Iterable[ir.Value]) -> list[str]:
        """What people should hear of the constants that the loss depends on."""
        there = set(reaches)
        numbers, buffers, masks = (
            some((v.name or "" for v in values if v in there), most=20)
            for values in (self.numbers, self.buffers, self.masks)
        )
        lone = some((v.name or "" for v in self.values if is_scalar(v) and v in there), most=20)
        said = []
        if numbers:
            trained = f"; trained, as parts of layers: {lone}" if lone else ""
            said.append(
                f"scalar initializers are not trained; --wrt NAME trains them: {numbers}{trained}"
            )
        if buffers:
            said.append(f"buffers are not trained; --wrt NAME trains them: {buffers}")
        if masks:
            said.append(f"masks are not trained; --wrt NAME trains them: {masks}")
        return said


def parameters(graph: ir.Graph, leaves: Sequence[ir.Value]) -> Parameters:
    """Sort the float initializers among `leaves`; each can still be asked for by name."""
    written = {v.name or "" for node in graph for v in node.outputs}
    values, numbers, buffers, masks = [], [], [], []
    for value in leaves:
        if not value.is_initializer() or not is_float(value) or is_state(value):
            continue
        said = role(value, written)
        if said is None:
            several = not is_scalar(value)
            trained = several or (len(value.shape or ()) > 0 and _is_of_a_layer(value))
            said = "parameter" if trained else "constant"
            if said == "parameter" and _is_mask(value):
                masks.append(value)
                continue
        if said == "parameter":
            values.append(value)
        elif is_scalar(value):
            numbers.append(value)
        elif KIND in value.metadata_props:
            buffers.append(value)
    return Parameters(tuple(values), tuple(numbers), tuple(buffers), tuple(masks))


def _is_mask(value: ir.Value) -> bool:
    """Whether a tensor begins with a row that lets attention pass some scores and no others.

    A row is looked at and not the whole: weights may be large, and in another file.
    """
    tensor, shape = value.const_value, value.shape
    if tensor is None or shape is None or len(shape) < 2 or getattr(tensor, "absent", False):
        return False
    first = io.array(tensor).reshape(-1)[:_LOOKED_AT]
    first = first if first.dtype.kind == "f" else first.astype(np.float32)  # bfloat16 and smaller
    return bool((first <= max(_MASKED, float(np.finfo(first.dtype).min))).any())


_LOOKED_AT = 4_096  # elements of a tensor
_MASKED = -1e9  # and what is below, or the least number of the type

# --------------------------------------------------------------------------------- places

_STATE: Mapping[str, tuple[int, ...]] = {
    "BatchNormalization": (3, 4),
    "BatchNormalizationTraining": (3, 4),
    "Dropout": (1,),
    "DropoutMask": (1,),
    "QuantizeLinear": (1, 2),
    "DequantizeLinear": (1, 2),
    "Resize": (1, 2, 3),
    "SoftmaxCrossEntropyLoss": (2,),
    "NegativeLogLikelihoodLoss": (2,),
}
_LAYERS: Mapping[str, tuple[int, ...]] = {
    "Gemm": (0, 1, 2),
    "MatMul": (0, 1),
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


def is_state(value: ir.Value) -> bool:
    """Whether a tensor serves as a statistic, a scale, a ratio or weights of classes only."""
    uses = list(value.uses())
    if value.meta.get(CLASS_WEIGHTS):
        return True
    return bool(uses) and all(u.idx in _STATE.get(u.node.op_type, ()) for u in uses)


def _is_of_a_layer(value: ir.Value) -> bool:
    """Whether a layer reads it as weight, bias or gain, perhaps laid out in another way first."""
    waiting = list(value.uses())
    while waiting:
        use = waiting.pop()
        node = use.node
        if use.idx in _LAYERS.get(node.op_type, ()) or _is_bias_or_gain(node, use.idx):
            return True
        if node.op_type in (*LAYOUTS, "Expand") and use.idx == 0:
            waiting += node.outputs[0].uses()
    return False


def _is_bias_or_gain(node: ir.Node, slot: int) -> bool:
    """Whether a node adds an input to a product, or scales or shifts by it what was normalised."""
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
    """The node that a value comes from, layouts left out."""
    node = value.producer() if value is not None else None
    while node is not None and node.op_type in LAYOUTS:
        value = node.inputs[0]
        node = value.producer() if value is not None else None
    return node
