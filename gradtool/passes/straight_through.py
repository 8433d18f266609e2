"""Quantised values on floats, so that gradients pass straight through the rounding.

A gradient can't be a value of 8 bits.  So where DequantizeLinear undoes a QuantizeLinear, perhaps
behind operators that only lay values out, both become `FakeQuantize`, from float to float, whose
body is the pair again.  Products of integers become products of their dequantised floats.  The
scale that DynamicQuantizeLinear measures is taken as a constant.

Values quantised on the way from an input pass gradients on by themselves.  Rounding a parameter is
the purpose of `--ste`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.attributes import arguments
from gradtool.graph.prune import prune
from gradtool.graph.reads import dependent
from gradtool.graph.typed import as_tensor, ints, static
from gradtool.operators.low_bits import SLOTS
from gradtool.passes.fuse_low_bits import WHOLE
from gradtool.passes.integer_products import PRODUCTS, SCALED, casts
from gradtool.text.words import count

FLOAT = ir.DataType.FLOAT
REMEDY = (
    'to train such weights, quantise the float model with extra_options={"AddQDQPairToWeight": '
    "True} in QDQ format, and pass --ste"
)
QLINEAR = ("QLinearConv", "QLinearMatMul")
BENT = ("Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
# What an integer has in common with the float that it stands for.
LAYOUTS = (
    "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Reshape",
    "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
)  # fmt: skip


def straight_through(model: ir.Model, op: Builder) -> int:
    """Replace them in place. Returns how many there were."""
    for node in [n for n in model.graph if not n.domain]:
        if node.op_type in QLINEAR:
            from gradtool.passes import _contrib_quantized as quantized
            from gradtool.passes import lower_contrib

            lower_contrib.replace(op, node, quantized.STANDARD[node.op_type])
        elif node.op_type == "DynamicQuantizeLinear":
            _measure_apart(op, node)
    found = _Reals(op).replace_all()
    if found:
        prune(model, spare=False)
    return found


def frozen(graph: ir.Graph, *, adapted: bool) -> list[str]:
    """Lines with remedies to train weights of integers, if there are any, or they are `adapted`."""
    found = [value for value in graph.initializers.values() if _is_weight(value)]
    coded = [value for value in found if _is_of_few_bits(value)]
    held = len(found) - len(coded)
    said = []
    if held:
        said.append(f"{count(held, 'quantised weight')} of integers: not trained; {REMEDY}")
    if coded and not adapted:
        said.append(
            f"{count(len(coded), 'weight')} of few bits: not trained; --lora RANK trains an "
            "adapter beside each"
        )
    return said


def _is_weight(value: ir.Value) -> bool:
    small = value.dtype is not None and value.dtype.is_integer() and value.dtype.bitwidth <= 8
    if not small:
        return False
    return _is_of_few_bits(value) or (len(value.shape or ()) > 1 and _is_weighing(value))


def _is_of_few_bits(value: ir.Value) -> bool:
    """Whether a product decodes it a block at a time, or scales its numbers."""
    return bool(value.meta.get(SCALED)) or any(
        use.idx == SLOTS.get(use.node.op_type)
        or (use.idx == 0 and use.node.attributes.get_int("block_size", 0) > 0)
        or (use.node.op_type == "Reshape" and _is_of_few_bits(use.node.outputs[0]))
        for use in value.uses()
    )


def _is_weighing(value: ir.Value) -> bool:
    """Whether a product or a DequantizeLinear reads it, perhaps laid out in another way first."""
    return any(
        use.node.op_type in (*PRODUCTS, *QLINEAR)
        or (use.node.op_type == "DequantizeLinear" and use.idx == 0)
        or (use.node.op_type in LAYOUTS and _is_weighing(use.node.outputs[0]))
        for use in value.uses()
    )


def _measure_apart(op: Builder, node: ir.Node) -> None:
    """Let DynamicQuantizeLinear find scale and zero point only, and a QuantizeLinear round."""
    nodes = list(op.graph)
    after = nodes[nodes.index(node) + 1 :]
    with op.at(
        after[0] if after else None, stage="forward", source="", prefix=node.name or node.op_type
    ):
        rounded = op.QuantizeLinear(node.inputs[0], *node.outputs[1:3])
    for use in tuple(node.outputs[0].uses()):
        use.node.replace_input_with(use.idx, rounded)


@dataclass(frozen=True)
class _Steps:
    """The steps of a quantised value: its scale and zero point, and their axis."""

    quantizer: ir.Node
    moved: bool = False

    @property
    def of(self) -> list[ir.Value | None]:
        return [*self.quantizer.inputs[1:3], None][:2]

    def fit(self, node: ir.Node) -> bool:
        """Whether a DequantizeLinear counts alike."""
        same = all(map(_is_same, self.of, [*node.inputs[1:3], None][:2]))
        return same and (self.is_one or (not self.moved and _lies_alike(self.quantizer, node)))

    @property
    def is_one(self) -> bool:
        """Whether the scale is one for all elements."""
        shape = None if self.of[0] is None else self.of[0].shape
        return shape is not None and (len(shape) == 0 or list(shape) == [1])


class _Reals:
    """The dequantised floats of integers, each emitted once."""

    def __init__(self, op: Builder) -> None:
        self.op = op
        free = [v for v in op.graph.inputs if not v.is_initializer()]
        self.moving = dependent(op.graph, free)
        self.made: dict[tuple[ir.Value, int], Any] = {}
        self.known: dict[ir.Value, _Steps | None] = {}

    def replace_all(self) -> int:
        """Replace every reader of such integers with a float result; returns their number."""
        nodes = [n for n in self.op.graph if not n.domain]
        return sum(self._replace(n) for n in nodes)

    def _replace(self, node: ir.Node) -> bool:
        if node.op_type == "DequantizeLinear":
            return self._dequantize(node)
        return node.op_type in PRODUCTS and self._multiply(node)

    def _dequantize(self, node: ir.Node) -> bool:
        steps = self._steps(node.inputs[0])
        if steps is None or not steps.fit(node):
            return False
        with self._at(node):
            made = self._real(as_tensor(node.inputs[0]), node.attributes.get_int("output_dtype", 0))
        _stand_in(made, node.outputs[0])
        return True

    def _multiply(self, node: ir.Node) -> bool:
        """A product of integers cast to floats, as one of floats: whole numbers still."""
        found = list(casts(node.outputs[0]))
        a, b, *zeros = [*node.inputs, None, None][:4]
        sides = [self._steps(a), self._steps(b)]
        if not found or not any(sides) or node.outputs[0].is_graph_output():
            return False
        pairs = zip(sides, zeros, strict=True)
        if not all(s is None or (s.is_one and _is_same(s.of[1], z)) for s, z in pairs):
            return False
        rank, dense = len(as_tensor(a).shape), node.op_type == "MatMulInteger"
        with self._at(found[0][0] if len(found) == 1 else node), self.op.arithmetic():
            places = (rank - 2, -1) if dense else (1, 0)
            parts = [
                self._whole(v, z, s, axis)
                for v, z, s, axis in zip((a, b), zeros, sides, places, strict=True)
            ]
            product = getattr(self.op, PRODUCTS[node.op_type])(*parts, **arguments(node))
        for cast, added in found:
            with self._at(cast), self.op.arithmetic():
                whole = product if added is None else product + self._added(added)
                made = self.op.Identity(self.op.cast(whole, as_tensor(cast.outputs[0]).dtype))
            _stand_in(made, cast.outputs[0])
        return True

    def _added(self, value: ir.Value) -> Any:
        """An integer as a float; of one that a float was cast to, the rounding passes gradients."""
        layouts, source = [], value.producer()
        while source is not None and source.op_type in BENT and not source.domain:
            layouts.append(source)
            first = source.inputs[0]
            source = None if first is None else first.producer()
        rounded = self.op.cast(as_tensor(value), FLOAT)
        given = source.inputs[0] if source is not None and source.op_type == "Cast" else None
        while (before := None if given is None else given.producer()) is not None and (
            before.op_type in ("Ceil", "Floor", "Round")
        ):
            given = before.inputs[0]
        if given is None or given.dtype != FLOAT:
            return rounded
        for node in reversed(layouts):
            given = getattr(self.op, node.op_type)(given, *node.inputs[1:], **arguments(node))
        lost = self.op.Identity(rounded - as_tensor(given))
        self.op.stopped.add(lost)
        return self.op.Add(given, lost)

    def _whole(self, value: Any, zero: Any, steps: _Steps | None, axis: int) -> Any:
        """`q - zero` as floats."""
        if steps is not None:
            return self._real(value) / steps.of[0]
        if value.is_initializer() and (zero is None or static(zero.shape)):
            ones = np.ones([] if zero is None else ints(zero.shape), np.float32)
            if ones.ndim < 2:
                value.meta[WHOLE] = True
                place = axis % len(value.shape)
                return self.op.DequantizeLinear(value, self.op.constant(ones), zero, axis=place)
        q = self.op.cast(value, FLOAT)
        if zero is None:
            return q
        zero = self.op.cast(zero, FLOAT)
        rank, several = len(value.shape), len(zero.shape) == 1 and zero.shape[0] != 1
        if several and axis not in (-1, rank - 1):
            zero = self.op.Reshape(zero, [-1 if a == axis else 1 for a in range(rank)])
        return q - zero

    def _at(self, node: ir.Node) -> Any:
        return self.op.at(node, stage="forward", source="", prefix=node.name or node.op_type)

    def _steps(self, value: ir.Value | None) -> _Steps | None:
        """The steps of an integer; None if it does not come from a rounding that may pass."""
        node = None if value is None else value.producer()
        if value is None or node is None or node.domain or node.graph is not self.op.graph:
            return None
        if value not in self.known:
            self.known[value] = self._found(node)
        return self.known[value]

    def _found(self, node: ir.Node) -> _Steps | None:
        if node.op_type == "QuantizeLinear":
            kind = node.outputs[0].dtype
            passes = node.inputs[0] in self.moving and kind is not None and kind.is_integer()
            return _Steps(node) if passes or self.op.ste else None
        if node.op_type not in LAYOUTS or (node.op_type == "MaxPool" and len(node.outputs) > 1):
            return None
        joined = node.inputs if node.op_type == "Concat" else node.inputs[:1]
        found = [self._steps(v) for v in joined]
        first = found[0]
        if first is None or not all(s is not None and _is_alike(first, s) for s in found):
            return None
        return replace(first, moved=True)

    def _real(self, value: ir.Value, to: int = 0) -> Any:
        """The dequantised value of an integer of known steps, emitted at the builder if new."""
        node = value.producer()
        assert node is not None  # noqa: S101 - it has steps
        if (value, to) in self.made:
            return self.made[value, to]
        if node.op_type == "QuantizeLinear":
            made = [_fake(self.op, node, to)]
        else:
            count = len(node.inputs) if node.op_type == "Concat" else 1
            inputs = [self._real(v, to) for v in node.inputs[:count] if v is not None]
            emit, given = getattr(self.op, node.op_type), arguments(node)
            outputs = len(node.outputs)
            result = emit(*inputs, *node.inputs[count:], **given, outputs=outputs)
            made = [result] if outputs == 1 else list(result)
        self.made.update(zip(zip(node.outputs, itertools.repeat(to)), made, strict=True))
        return self.made[value, to]


def _lies_alike(a: ir.Node, b: ir.Node) -> bool:
    return all(
        a.attributes.get_int(name, default) == b.attributes.get_int(name, default)
        for name, default in (("axis", 1), ("block_size", 0))
    )


def _is_alike(a: _Steps, b: _Steps) -> bool:
    kinds = {s.quantizer.outputs[0].dtype for s in (a, b)}
    return a.is_one and b.is_one and len(kinds) == 1 and all(map(_is_same, a.of, b.of))


def _is_same(a: ir.Value | None, b: ir.Value | None) -> bool:
    if a is b:
        return True
    if a is None or b is None:
        return False
    left, right = (ir.convenience.get_const_tensor(v) for v in (a, b))
    if left is None or right is None or left.dtype != right.dtype or left.shape != right.shape:
        return False
    return left.tobytes() == right.tobytes()


def _fake(op: Builder, quantizer: ir.Node, to: int) -> Any:
    given = arguments(quantizer)
    options = {
        "axis": given.get("axis", 1),
        "block_size": given.get("block_size", 0),
        "kind": int(quantizer.outputs[0].dtype or ir.DataType.UINT8),
        "saturate": given.get("saturate", 1),
        "precision": given.get("precision", 0),
        "to": to,
    }
    return op.FakeQuantize(quantizer.inputs[0], *quantizer.inputs[1:3], **options)


def _stand_in(made: ir.Value, old: ir.Value) -> None:
    """Let a value be read for another; it gets the name, unless it has one that counts."""
    if old.is_graph_output() or made.name is None or not made.uses():
        title, old.name = old.name, None
        made.name = title
    old.replace_all_uses_with(made, replace_graph_outputs=True)
