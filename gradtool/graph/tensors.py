"""The elements of tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import onnx_ir as ir

_COMPARED = 1 << 22  # elements at once


def elements(tensor: ir.TensorProtocol) -> int:
    """The number of elements of a tensor; one that is a message makes a shape to tell its own."""
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
    """The value of a tensor; strings are Python's.

    Raises:
        MissingData: its data file is absent.
    """
    if tensor.dtype == ir.DataType.STRING:
        stored = np.asarray(tensor.numpy(), dtype=object)
        texts = [t.decode() if isinstance(t, bytes) else str(t) for t in stored.ravel()]
        return np.array([*texts, None], dtype=object)[:-1].reshape(stored.shape)
    return tensor.numpy()


def flat(tensor: ir.TensorProtocol, start: int, stop: int) -> np.ndarray[Any, Any]:
    """Elements of a tensor in the order of memory, in one row; of a file, they alone are read.

    Raises:
        MissingData: its data file is absent.
    """
    of_file = getattr(tensor, "flat", None)
    found: np.ndarray[Any, Any] = (
        array(tensor).reshape(-1)[start:stop] if of_file is None else of_file(start, stop)
    )
    return found


def holds(tensor: ir.TensorProtocol, numbers: np.ndarray[Any, Any]) -> bool:
    """Whether a tensor has the bits of an array of its type and shape; a file is read in pieces.

    Raises:
        MissingData: its data file is absent.
    """
    row = numbers.reshape(-1)
    step = _COMPARED if is_external(tensor) else max(row.size, 1)
    return all(
        flat(tensor, start, start + step).tobytes() == row[start : start + step].tobytes()
        for start in range(0, row.size, step)
    )


@dataclass(frozen=True)
class Deferred:
    """A lazy tensor for numpy, read when numpy asks for the elements."""

    tensor: ir.TensorProtocol

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of an element."""
        return np.dtype(self.tensor.dtype.numpy())

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return tuple(self.tensor.shape.numpy())

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:  # noqa: FBT001
        found = array(self.tensor)
        return found if dtype is None else found.astype(dtype, copy=False)
