"""Tensors of zeros without memory, which share one place in the data file beside a model."""

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
    """A tensor with one shared zero for all elements."""
    return ir.Tensor(np.broadcast_to(np.zeros((), dtype.numpy()), sizes))
