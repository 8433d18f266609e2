"""Tensors of zeros that take no memory and, beside a model, share one place in its data file."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir


class Zeros(ir.LazyTensor):
    """A tensor whose elements are all zero; its bytes exist only while somebody asks for them."""

    __slots__ = ()

    def __init__(self, dtype: ir.DataType, sizes: tuple[int, ...], name: str | None = None) -> None:
        make = partial(_one_zero, dtype, sizes)
        super().__init__(make, dtype=dtype, shape=ir.Shape(sizes), name=name)

    def tobytes(self) -> bytes:
        """As many zero bytes as the tensor has."""
        return bytes(self.nbytes)


def _one_zero(dtype: ir.DataType, sizes: tuple[int, ...]) -> ir.Tensor[Any]:
    """A tensor every element of which is the same zero."""
    return ir.Tensor(np.broadcast_to(np.zeros((), dtype.numpy()), sizes))
