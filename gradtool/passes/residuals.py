"""Residuals, the values that backward reads of forward, in bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from gradtool.graph.predicates import is_tensor
from gradtool.graph.reads import reads
from gradtool.graph.stages import is_backward
from gradtool.graph.summarized import evaluated, follow
from gradtool.passes.layouts import is_layout, is_returned, storages

ASSUMED = 8  # the size of an open dimension that nobody gave


@dataclass(frozen=True)
class Residuals:
    """The values that backward keeps of forward, by the order of their first readers.

    `bytes` is the cost of keeping them: nothing for results of the model, which are kept anyway,
    and nothing for values known before the step.  `unsized` are values of unknown rank or type,
    which are not in it.
    """

    values: tuple[ir.Value, ...]
    bytes: int
    unsized: tuple[ir.Value, ...]


def residuals(model: ir.Model, dims: Mapping[str, int] | None = None) -> Residuals:
    """The residuals of a training graph; of layouts of one value, only that.

    Inputs, parameters and constants are always there and do not cross.  Open sizes are those of
    `dims`, else `ASSUMED`.
    """
    sizes, storage = Sizes(dims), storages(model)
    read = (
        storage(v)
        for node in model.graph
        if is_backward(node) and not is_layout(model, node)
        for v in reads(node)
    )
    found = tuple(dict.fromkeys(v for v in read if is_forward_result(v)))
    kept = {v: sizes.kept_bytes(v) for v in found}
    total = sum(size for size in kept.values() if size is not None)
    return Residuals(found, total, tuple(v for v, size in kept.items() if size is None))


def is_forward_result(value: ir.Value) -> bool:
    """Whether a value is computed by a forward node, so that it has to be saved."""
    node = value.producer()
    return node is not None and node.op_type != "Constant" and not is_backward(node)


class Sizes:
    """Bytes of values, with the same size for the same expression."""

    def __init__(self, dims: Mapping[str, int] | None = None) -> None:
        self._dims = dict(dims or {})
        self._known: dict[str, int] = {}
        self._symbols = dict(self._dims)

    def kept_bytes(self, value: ir.Value) -> int | None:
        """The bytes for keeping a value: 0 for a result of the model or a known value."""
        if is_returned(value) or value.const_value is not None:
            return 0
        return self.bytes(value)

    def bytes(self, value: ir.Value) -> int | None:
        """Bytes of a tensor, rounded up to whole ones; None if its rank or type is unknown."""
        if value.shape is None or value.dtype is None or value.dtype == ir.DataType.STRING:
            return None
        if not is_tensor(value):
            return None
        elements = math.prod(self.size(d) for d in value.shape)
        return -(-elements * int(value.dtype.bitwidth) // 8)

    def elements(self, value: ir.Value) -> int | None:
        """Elements of a tensor; None if its rank is unknown."""
        if value.shape is None or not is_tensor(value):
            return None
        return math.prod(self.size(d) for d in value.shape)

    def are_given(self, values: Iterable[ir.Value]) -> bool:
        """Whether all sizes of values follow from the given ones."""
        shapes = [value.shape for value in values]
        sizes = {size for shape in shapes if shape is not None for size in shape}
        return None not in shapes and follow(sizes, self._dims)

    def size(self, dim: int | ir.SymbolicDim) -> int:
        """One size, as it is given or assumed."""
        if isinstance(dim, int):
            return dim
        if dim.value is None:
            return ASSUMED
        if dim.value not in self._known:
            found = evaluated(dim, self._symbols, lambda _name: ASSUMED)
            self._known[dim.value] = ASSUMED if found is None else max(found, 0)
        return self._known[dim.value]
