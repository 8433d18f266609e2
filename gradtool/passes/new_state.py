"""New state of a step: zeros to begin with, and its next value among the outputs."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.io.zeros import Zeros


def zeros(op: Builder, name: str, dtype: ir.DataType, sizes: Sequence[int]) -> ir.Value:
    """A new initializer of zeros, which changes from step to step."""
    tensor = Zeros(dtype, tuple(sizes), op.names.fresh(name))
    made = ir.Value(
        name=tensor.name, shape=ir.Shape(sizes), type=ir.TensorType(dtype), const_value=tensor
    )
    op.root.register_initializer(made)
    op.folding.never([made])
    return made


def publish(op: Builder, old: ir.Value, new: ir.Value, state: dict[str, str]) -> None:
    """Return a next value as `<name>_next`, and note it in `state`."""
    new.name = op.names.fresh(f"{old.name}_next")
    op.root.outputs.append(new)
    state[old.name or ""] = new.name
