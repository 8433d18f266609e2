"""The elements of tensors."""

from __future__ import annotations

import math
from typing import Any, TypeGuard

import numpy as np
import onnx_ir as ir


def elements(tensor: ir.TensorProtocol) -> int:
    """How many elements a tensor has; one that is a message makes a shape to tell its own."""
    if type(tensor) is ir.serde.TensorProtoTensor:
        return math.prod(tensor.raw.dims)
    return tensor.size


def nbytes(tensor: ir.TensorProtocol) -> int:
    """The bytes of a tensor's elements."""
    if type(tensor) is ir.serde.TensorProtoTensor:
        return math.ceil(tensor.dtype.itemsize * elements(tensor))
    return tensor.nbytes


def is_external(tensor: object) -> TypeGuard[ir.ExternalTensor]:
    """Whether a tensor is in a file of its own; its class is asked, which protocols make slow."""
    return issubclass(type(tensor), ir.ExternalTensor)


def array(tensor: ir.TensorProtocol) -> np.ndarray[Any, Any]:
    """The value of a tensor, without a copy where it is mapped; strings are Python's.

    Raises:
        MissingData: its data file is absent.
    """
    if tensor.dtype == ir.DataType.STRING:
        stored = np.asarray(tensor.numpy(), dtype=object)
        texts = [t.decode() if isinstance(t, bytes) else str(t) for t in stored.ravel()]
        return np.array([*texts, None], dtype=object)[:-1].reshape(stored.shape)
    return tensor.numpy()


def leading(tensor: ir.TensorProtocol, count: int) -> np.ndarray[Any, Any]:
    """The first elements of a tensor, in one row; of a file, they alone are read.

    Raises:
        MissingData: its data file is absent.
    """
    of_file = getattr(tensor, "leading", None)
    found: np.ndarray[Any, Any] = (
        array(tensor).reshape(-1)[:count] if of_file is None else of_file(count)
    )
    return found
