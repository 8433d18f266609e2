"""The data of a model's initializers, as it is loaded into an arena."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool import io
from gradtool.errors import MissingData
from gradtool.io.file_tensors import FileTensor

Parameters = Callable[[str], np.ndarray[Any, Any]]


def parameters_of(model: ir.Model) -> Parameters:
    """A function from the name of an initializer to its array; raises MissingData."""

    def look_up(name: str) -> np.ndarray[Any, Any]:
        tensor = model.graph.initializers[name].const_value
        if tensor is None:
            raise MissingData(f"initializer {name!r} has no data; run needs the weights")
        return tensor.read() if isinstance(tensor, FileTensor) else io.array(tensor)

    return look_up
