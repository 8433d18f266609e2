"""What is known of a value's shape and type before a run."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gradtool.program import Spec


def spec_of(value: ir.Value) -> Spec | None:
    """None where no plan can know it: strings, sequences, and sizes that depend on data."""
    shape, dtype = value.shape, value.dtype
    if shape is None or dtype is None or dtype == ir.DataType.STRING:
        return None
    if not isinstance(value.type, ir.TensorType) or not shape.is_static():
        return None
    return Spec(shape.numpy(), np.dtype(dtype.numpy()))


def least_of(value: ir.Value) -> Spec | None:
    """What is known of a tensor whose shape depends on data: its type, its rank, some sizes."""
    if value.shape is None or value.dtype is None or not isinstance(value.type, ir.TensorType):
        return None
    if value.shape.is_static() or value.dtype == ir.DataType.STRING:
        return None
    sizes = tuple(d if isinstance(d, int) else 0 for d in value.shape)
    return Spec(sizes, np.dtype(value.dtype.numpy()))
