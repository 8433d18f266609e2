"""Facts about constant values."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir


def array(value: ir.Value | None) -> Any:
    """A constant as a numpy array; None where it is absent, empty or not constant."""
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return None if tensor is None or tensor.size == 0 else tensor.numpy()


def integers(value: ir.Value | None) -> list[int] | None:
    """The elements of a constant integer tensor, None for any other value."""
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return None if tensor is None else [int(n) for n in tensor.numpy().reshape(-1)]
