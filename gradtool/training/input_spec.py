"""The inputs fed by data, and the axis of examples of each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

import onnx_ir as ir

from gradtool.exec import feeds


@dataclass(frozen=True)
class InputSpec:
    """Inputs fed by data, by name, and the axis of examples of each.

    `symbol` is what the inputs call the number of examples, `size` that which the model itself
    fixes, None where it is open; `labels` are the inputs that outputs are held against, which a
    loss may take some `shifts` ahead.
    """

    model: ir.Model
    inputs: Mapping[str, ir.Value]
    axes: Mapping[str, int | None]
    size: int | None
    symbol: str | None = None
    labels: tuple[str, ...] = ()
    shifts: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, model: ir.Model, also: Iterable[str] = (), labels: Collection[str] = ()) -> Self:
        """The inputs without a default; those `also` named come from elsewhere.

        Where inputs leave the number of examples open and the `labels` that outputs are held
        against do not, nodes fix it.
        """
        known = {*feeds.defaults(model), *feeds.buffers(model), *also}
        inputs = {v.name or "": v for v in feeds.inputs_of(model) if v.name not in known}
        for value in inputs.values():
            feeds.require_tensor(value)
        symbol, size = _leading(inputs.values())
        if symbol is not None:
            size = next(_fixed(inputs[name] for name in labels if name in inputs), None)
        axes = {name: _axis(value, symbol, size) for name, value in inputs.items()}
        return cls(model, inputs, axes, size, symbol, tuple(n for n in inputs if n in labels))


def _leading(inputs: Iterable[ir.Value]) -> tuple[str | None, int | None]:
    """The symbol that the examples of a batch are counted by, or their fixed number.

    That is the symbol called batch, or the leading one of the first input that has any axes; where
    that input has no open axis at the front, its only open axis.
    """
    shaped = [v.shape for v in inputs if v.shape is not None and len(v.shape)]
    named = [str(d.value) for s in shaped for d in s if isinstance(d, ir.SymbolicDim) and d.value]
    if "batch" in named:
        return "batch", None
    if not shaped:
        return None, None
    first = shaped[0][0]
    if isinstance(first, ir.SymbolicDim):
        return (str(first.value) if first.value is not None else None), None
    alone = [d for d in shaped[0] if isinstance(d, ir.SymbolicDim)]
    if len(alone) == 1 and alone[0].value is not None:
        return str(alone[0].value), None
    return None, first


def _fixed(inputs: Iterable[ir.Value]) -> Iterator[int]:
    """The leading sizes of shapes that leave nothing open."""
    shapes = (value.shape for value in inputs)
    return (s.numpy()[0] for s in shapes if s is not None and len(s) and s.is_static())


def _axis(value: ir.Value, symbol: str | None, size: int | None) -> int | None:
    """The axis of the examples of an input; None if each batch has all of it."""
    if value.shape is None:
        return 0
    dims = list(value.shape)
    if symbol is not None:
        for axis, dim in enumerate(dims):
            if isinstance(dim, ir.SymbolicDim) and dim.value == symbol:
                return axis
    if not dims or (isinstance(dims[0], int) and dims[0] != size):
        return None
    return 0
