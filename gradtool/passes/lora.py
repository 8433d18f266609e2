"""Low-rank adapters beside the weights of MatMul, Gemm and Conv: they are trained, the weights not.

    x · W         becomes   x · W + ((x · A) · s) · B
    Conv (x, W)   becomes   Conv (x, W) + Conv (Conv (x, A) · s, B)

A is drawn, B is zero: until the first update nothing changes.  The product A · B is never made,
so that neither it nor a gradient of W takes memory.  W may be a matrix of few bits, as products of
com.microsoft have it.  See `gradtool.graph.lora` for shapes.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UsageError
from gradtool.graph.attributes import arguments
from gradtool.graph.lora import Adapter
from gradtool.graph.training_info import record
from gradtool.io.zeros import Zeros
from gradtool.passes._adapted_weights import Use, flips, kind_of, stored_as, targets, uses_of
from gradtool.passes.integer_products import mark_scales
from gradtool.passes.parameters import Roles
from gradtool.passes.training_forms import stand_in


@dataclass(frozen=True)
class Lora:
    """Requested adapters: a rank, globs of weights, and the scale `alpha / rank` of the product.

    Without targets every weight that can have an adapter gets one; `alpha` is the rank if nothing
    is said.  `seed` is that of A.  A `stabilized` scale is `alpha / √rank`.

    Source: Kalajdzievski 2023 (arXiv:2312.03732), of the stabilized scale.
    """

    rank: int
    targets: Sequence[str] = ()
    alpha: float | None = None
    seed: int = 0
    stabilized: bool = False

    @property
    def scale(self) -> float:
        """The factor of the product."""
        alpha = self.rank if self.alpha is None else self.alpha
        return alpha / (math.sqrt(self.rank) if self.stabilized else self.rank)


@dataclass(frozen=True)
class Attached:
    """The adapters of a model, and by value of the model its replacement."""

    adapters: tuple[Adapter, ...]
    moved: Mapping[ir.Value, ir.Value]


def attach(op: Builder, asked: Lora, roles: Roles) -> Attached:
    """Put adapters beside weights of the builder's model, in place, and note them in its metadata.

    A glob takes weights trained by their `roles`, a full name any weight that has a gradient.
    Values of the graph have types and shapes.

    Raises:
        UsageError: a target matches no weight that can have an adapter.
    """
    moved: dict[ir.Value, ir.Value] = {}
    adapters = []
    for weight, uses in targets(op.model, asked.targets, roles).items():
        adapter = _adapter(weight, uses, asked)
        a, b = _drawn(op, kind_of(weight, uses), adapter, asked)
        adapters.append(replace(adapter, a=a.name or "", b=b.name or ""))
        for use in uses:
            result, total = _stand_beside(op, adapter, use, a, b)
            moved[result] = total
    record(op.model, lora=tuple(adapters))
    return Attached(tuple(adapters), moved)


def attach_zeros(model: ir.Model, adapters: Sequence[Adapter], shapes: Mapping[str, Any]) -> None:
    """Put known adapters into a model as its file has it, as inputs of zeros by default.

    `shapes` are those of their tensors.  Types and shapes of values may be unknown.

    Raises:
        UsageError: a weight of theirs is read otherwise than by products, or not there.
    """
    op = Builder(model, stage="forward")
    mark_scales(model.graph)
    for adapter in adapters:
        weight = model.graph.initializers.get(adapter.weight)
        uses = None if weight is None else uses_of(weight)
        if weight is None or not isinstance(uses, list):
            why = "is no tensor of its own there" if uses is None else uses
            raise UsageError(f"no adapter beside {adapter.weight!r} in the file itself: it {why}")
        dtype = kind_of(weight, uses)[0]
        a, b = (op.initializer(Zeros(dtype, tuple(shapes[name]), name)) for name in adapter.names)
        model.graph.inputs.extend((a, b))
        unknown = ir.Value(type=ir.TensorType(dtype))
        for use in uses:
            _stand_beside(op, adapter, use, a, b, like=unknown)
    model.ir_version = max(model.ir_version, 4)  # before, initializers cannot be overridden


# ------------------------------------------------------------------------------------ adapters


def _adapter(weight: ir.Value, uses: Sequence[Use], asked: Lora) -> Adapter:
    """An adapter in the direction of the first product with the weight."""
    first = uses[0]
    groups = first.node.attributes.get_int("group", 1) if first.node.op_type == "Conv" else 1
    flipped = first.node.op_type == "Conv" or first.flipped != (first.slot == 0)
    name = stored_as(weight)[0]
    return Adapter(name, "", "", asked.scale, flipped, groups)


def _drawn(
    op: Builder, kind: tuple[ir.DataType, tuple[int, ...]], adapter: Adapter, asked: Lora
) -> tuple[ir.Value, ir.Value]:
    """New tensors A, uniform within 1 / √(inputs of an output), and B, zero; of a weight's `kind`.

    The numbers drawn depend on the seed and the name of the weight alone.

    Source: PEFT's `kaiming_uniform_(a=√5)`, which has these bounds.
    """
    (dtype, sizes), rank = kind, asked.rank
    if adapter.flipped:
        a_sizes = (rank * adapter.groups, *sizes[1:])
        b_sizes: tuple[int, ...] = (sizes[0], rank, *(1 for _ in sizes[2:]))
        fan_in = int(np.prod(sizes[1:]))
    else:
        a_sizes, b_sizes, fan_in = (sizes[0], rank), (rank, sizes[1]), sizes[0]
    stream = np.random.default_rng([asked.seed, zlib.crc32(adapter.weight.encode())])
    bound = 1 / np.sqrt(max(fan_in, 1))
    drawn = stream.uniform(-bound, bound, a_sizes).astype(dtype.numpy())
    names = (op.names.fresh(f"{adapter.weight}.lora_{which}") for which in "AB")
    a = op.initializer(ir.Tensor(drawn, dtype=dtype, name=next(names)))
    b = op.initializer(Zeros(dtype, b_sizes, next(names)))
    op.folding.never([a, b])
    return a, b


# ------------------------------------------------------------------------------------ branches


def _stand_beside(
    op: Builder,
    adapter: Adapter,
    use: Use,
    a: ir.Value,
    b: ir.Value,
    *,
    like: ir.Value | None = None,
) -> tuple[ir.Value, ir.Value]:
    """Add the branch of an adapter to a product: its former result, and the new one.

    The results of new nodes are `like` a value, or inferred.
    """
    node = use.node
    result = node.outputs[0]
    given = arguments(node)
    with op.at(node, stage="forward", source="", prefix=f"{node.name}/lora"):
        shape = None if like is not None or result.shape is None else result.shape.copy()
        made = op.place(
            node.domain, node.op_type, node.inputs, list(node.attributes.values()),
            [(result.type if like is None else like.type, shape)],
        )  # fmt: skip
        op.tell(made)
        base = made.outputs[0]
        made.metadata_props.update(node.metadata_props)
        emit = _Emit(op, like, adapter.scale * _gain(node))
        if node.op_type == "Conv":
            branch = emit.convolution(node.inputs[0], a, b, given)
        else:
            branch = emit.product(_other(emit, use), _pair(emit, adapter, use, a, b), use.slot)
        total = emit("Add", base, branch)
    stand_in((total,), node)
    return result, total


def _gain(node: ir.Node) -> float:
    return node.attributes.get_float("alpha", 1.0) if node.op_type == "Gemm" else 1.0


class _Emit:
    """Emits nodes whose results are `like` a value, or of whatever shape they turn out to be."""

    def __init__(self, op: Builder, like: ir.Value | None, scale: float) -> None:
        self.op, self.like, self.scale = op, like, scale

    def __call__(self, op_type: str, *inputs: Any, **attributes: Any) -> Any:
        return self.op.emit(op_type, inputs, None, attributes, self.like)

    def product(self, x: Any, pair: tuple[Any, Any], slot: int) -> Any:
        """`x · W` (or `W · x` in slot 0) for the product W of a pair."""
        first, second = pair
        if slot:
            return self("MatMul", self.scaled(self("MatMul", x, first)), second)
        return self("MatMul", first, self.scaled(self("MatMul", second, x)))

    def convolution(self, x: Any, a: ir.Value, b: ir.Value, given: Mapping[str, Any]) -> Any:
        """A convolution to as many channels as the rank, and one of size 1 to all."""
        groups = given.get("group", 1)
        ones = [1] * (len(b.shape or ()) - 2)
        narrow = self("Conv", x, a, **given)
        return self("Conv", self.scaled(narrow), b, group=groups, kernel_shape=ones)

    def scaled(self, x: Any) -> Any:
        """The value times the scale, unless that is 1."""
        if self.scale == 1:
            return x
        return self("Mul", x, self.op.constant(self.scale, x.dtype))


def _other(emit: _Emit, use: Use) -> Any:
    """The operand multiplied with the weight, in its layout there."""
    if use.x is not None:
        return use.x
    slot = 1 - use.slot
    x = use.node.inputs[slot]
    return emit("Transpose", x, perm=[1, 0]) if flips(use.node, slot) else x


def _pair(emit: _Emit, adapter: Adapter, use: Use, a: ir.Value, b: ir.Value) -> tuple[Any, Any]:
    """The two factors of the weight as the product reads it.

    Stored, the weight is `a · b`, or `b · a` where it is flipped.
    """
    first, second = (b, a) if adapter.flipped else (a, b)
    if not use.flipped:
        return first, second
    return emit("Transpose", second, perm=[1, 0]), emit("Transpose", first, perm=[1, 0])
