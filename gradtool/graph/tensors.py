"""The elements of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir


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
