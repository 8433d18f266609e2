"""Pattern matching of a linear layer whose scores a loss reads, from the scores back.

scores = cast, scale, softcap(x W + bias), in another layout of rows
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.graph.attributes import arguments
from gradtool.graph.composites import DOMAIN
from gradtool.graph.constants import integers
from gradtool.graph.predicates import HALVES
from gradtool.graph.typed import Tensor, as_tensor
from gradtool.passes._attention_operands import Operands, dims

_KINDS = ("Add", "Cast", "Div", "Flatten", "Gemm", "Identity", "MatMul", "Mul", "Reshape", "Slice",
          "Squeeze", "Tanh", "Unsqueeze")  # fmt: skip


@dataclass(frozen=True)
class Head:
    """A linear layer: `cap(scale · x W + gain · low up + shift · bias)`, and `layouts` of its rows.

    W is [K, C], or [C, K] where `turned`, `up` [R, C].  The layouts are nodes, the first one first.
    With a `matrix`, which are scale, zero and groups, w are codes as the attributes `coding` say.
    """

    x: ir.Value
    w: ir.Value
    turned: bool = False
    bias: ir.Value | None = None
    low: ir.Value | None = None
    up: ir.Value | None = None
    scale: float = 1.0
    gain: float = 1.0
    shift: float = 1.0
    softcap: float = 0.0
    layouts: tuple[ir.Node, ...] = ()
    matrix: tuple[ir.Value | None, ...] = ()
    coding: Mapping[str, Any] = field(default_factory=dict)

    @property
    def classes(self) -> int:
        """The number of scores of a row; 0 where it is not known."""
        found = dims(self.w)[0 if self.turned else 1]
        return found if isinstance(found, int) else 0

    @property
    def rows(self) -> int | None:
        """The number of rows of x, if it is known."""
        sizes = dims(self.x)[:-1]
        return math.prod(s for s in sizes if isinstance(s, int)) if _are_known(sizes) else None

    def scaled(self, factor: float) -> Head | None:
        """The layer times a factor; behind a cap that must be above 0."""
        if self.softcap:
            return None if factor <= 0 else self._capped_by(self.softcap * factor)
        return self._times(factor)

    def _times(self, factor: float) -> Head:
        scale, gain, shift = (n * factor for n in (self.scale, self.gain, self.shift))
        return replace(self, scale=scale, gain=gain, shift=shift)

    def _capped_by(self, cap: float) -> Head:
        """The layer with another cap, and the same slope of the tanh: that of `u / c`."""
        return replace(self._times(cap / self.softcap), softcap=cap)

    def capped(self) -> Head | None:
        """The tanh of the layer."""
        return None if self.softcap else replace(self, softcap=1.0)

    def biased(self, bias: ir.Value) -> Head | None:
        """The layer with a bias, if it had none."""
        free = not self.softcap and self.bias is None
        return replace(self, bias=bias, shift=1.0) if free else None


def head_of(look: Operands, scores: ir.Value | None, reader: ir.Node) -> Head | None:
    """The linear layer whose scores, classes last, `reader` alone reads; None where it is none."""
    node = look.maker(scores, *_KINDS) or look.maker(scores, "QuantizedMatMul", domains=(DOMAIN,))
    if scores is None or node is None or look.only_reader(scores) is not reader:
        return None
    match node.op_type:
        case "QuantizedMatMul":
            return _coded(node)
        case "MatMul":
            return _product(look, *node.inputs)
        case "Gemm":
            return _gemm(look, node)
        case "Add":
            a, b = node.inputs
            found = _adapted(look, node, a, b) or _added(look, node, a, b)
            return found or _added(look, node, b, a)
    found = head_of(look, _operand(look, node), node)
    return None if found is None else _behind(look, found, node)


def _behind(look: Operands, found: Head, node: ir.Node) -> Head | None:
    """The layer and a node that takes its scores."""
    match node.op_type:
        case "Mul" | "Div":
            scaled = look.factor(node)
            return None if scaled is None else found.scaled(scaled[1])
        case "Tanh":
            return found.capped()
        case "Cast":
            return found if _widens(node) else None
        case "Identity":
            return found
    leaves = _cuts_rows(node) if node.op_type == "Slice" else _keeps_classes(node)
    return replace(found, layouts=(*found.layouts, node)) if leaves else None


def _operand(look: Operands, node: ir.Node) -> ir.Value | None:
    """The scores among the operands of a node."""
    if node.op_type not in ("Mul", "Div"):
        return node.inputs[0]
    scaled = look.factor(node)
    return None if scaled is None else scaled[0]


def _product(
    look: Operands, x: ir.Value | None, w: ir.Value | None, *, turned: bool = False
) -> Head | None:
    """`x W`, the W before it was transposed."""
    if x is None or w is None or len(dims(w)) != 2 or len(dims(x)) < 2 or x.dtype != w.dtype:
        return None
    before = look.maker(w, "Transpose")
    if before is not None and before.inputs[0] is not None:
        w, turned = before.inputs[0], not turned
    width = dims(w)[1 if turned else 0]
    known = isinstance(width, int) and dims(x)[-1] == width
    return Head(x, w, turned) if known else None


def _coded(node: ir.Node) -> Head | None:
    """`x Wᵀ`, W a matrix of few bits."""
    x, codes, *matrix = node.inputs
    coding = arguments(node)
    if x is None or codes is None or not matrix or matrix[0] is None:
        return None
    fits = dims(x)[-1:] == [coding["size"]] and len(dims(x)) > 1 and len(dims(codes)) == 3
    if not fits or x.dtype != matrix[0].dtype or not coding.pop("turned", 1):
        return None
    return Head(x, codes, turned=True, matrix=tuple(matrix), coding=coding)


def _gemm(look: Operands, node: ir.Node) -> Head | None:
    """`alpha · x W + beta · bias`, the bias one for all rows."""
    x, w, c = (*node.inputs, None)[:3]
    said = node.attributes
    turned = said.get_int("transB", 0)
    found = _product(look, x, w, turned=turned != 0)
    if found is None or said.get_int("transA", 0) != 0:
        return None
    found = replace(found, scale=said.get_float("alpha", 1.0))
    if c is None:
        return found
    shift = said.get_float("beta", 1.0)
    return replace(found, bias=c, shift=shift) if _is_bias(c, found.classes) else None


def _added(
    look: Operands, node: ir.Node, scores: ir.Value | None, bias: ir.Value | None
) -> Head | None:
    """Scores and a bias, one for all rows."""
    found = head_of(look, scores, node) if bias is not None and scores is not None else None
    if found is None or bias is None or scores is None or dims(scores) != dims(node.outputs[0]):
        return None
    return found.biased(bias) if _is_bias(bias, found.classes) and not found.layouts else None


def _adapted(
    look: Operands, node: ir.Node, scores: ir.Value | None, branch: ir.Value | None
) -> Head | None:
    """Scores and the product of an adapter beside their layer, which nobody else reads."""
    made = look.maker(branch, "MatMul")
    if made is None or look.only_reader(branch) is not node:
        return None
    low, up = made.inputs
    found = head_of(look, scores, node)
    if found is None or found.low is not None or low is None or up is None:
        return None
    if found.softcap or found.layouts:
        return None
    fits = len(dims(up)) == 2 and dims(up)[-1] == found.classes and dims(low)[-1:] == dims(up)[:1]
    alike = dims(low)[:-1] == dims(found.x)[:-1] and low.dtype == up.dtype == found.x.dtype
    return replace(found, low=low, up=up, gain=1.0) if fits and alike else None


def _is_bias(bias: ir.Value, classes: int) -> bool:
    sizes = dims(bias)
    return bool(sizes) and sizes[-1] == classes and all(size == 1 for size in sizes[:-1])


def _widens(node: ir.Node) -> bool:
    """Whether a cast is to float32 from half precision, or to the same type."""
    before = None if node.inputs[0] is None else node.inputs[0].dtype
    after = node.outputs[0].dtype
    return before == after or (before in HALVES and after == ir.DataType.FLOAT)


def _cuts_rows(node: ir.Node) -> bool:
    """Whether a Slice leaves every row whole."""
    rank = len(dims(node.outputs[0]))
    axes = integers(node.inputs[3]) if len(node.inputs) > 3 else None
    return axes is not None and all(axis % rank != rank - 1 for axis in axes)


def _keeps_classes(node: ir.Node) -> bool:
    """Whether a layout leaves every row together."""
    before, after = (dims(v) if v is not None else [] for v in (node.inputs[0], node.outputs[0]))
    return len(before) > 0 < len(after) and before[-1] == after[-1] != 1


def _are_known(sizes: Sequence[object]) -> bool:
    return all(isinstance(size, int) for size in sizes)


def adapter_of(look: Operands, head: Head) -> tuple[Tensor, ...]:
    """The two halves of the adapter of a layer, [N, R] and [R, C], the first one scaled."""
    if head.low is None or head.up is None:
        return ()
    low = rows_of(look, head, head.low)
    return (low if head.gain == 1 else low * head.gain), as_tensor(head.up)


def rows_of(look: Operands, head: Head, rows: ir.Value) -> Tensor:
    """Rows as a layer takes them, [N, K], one for each row of scores."""
    op, x = look.op, as_tensor(rows)
    width = dims(x)[-1]
    cuts = [i for i, node in enumerate(head.layouts) if node.op_type == "Slice"]
    for node in head.layouts[: cuts[-1] + 1 if cuts else 0]:
        if node.op_type == "Slice":
            x = op.Slice(x, *node.inputs[1:])
        else:
            x = op.reshape(x, [*dims(node.outputs[0])[:-1], width])
    return op.reshape(x, [-1, width])


def bias_of(look: Operands, head: Head) -> Tensor | None:
    """The bias [C] of a layer, scaled."""
    if head.bias is None:
        return None
    bias = look.op.reshape(as_tensor(head.bias), [head.classes])
    return bias if head.shift == 1 else bias * head.shift


def scale_of(head: Head, x: Tensor) -> tuple[Tensor, float, float]:
    """Rows, scale and cap, the scale in the rows where single precision has it not."""
    scale, cap = head.scale, head.softcap
    if float(np.float32(scale)) != scale and x.dtype == ir.DataType.DOUBLE:
        return x * scale, 1.0, cap
    return x, float(np.float32(scale)), float(np.float32(cap))
