"""The types of kernels' operands: arrays, or specs of them before they are there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec

Array = Any  # of numpy or of CuPy, which share no type
Arrays = Sequence[Array]
Specs = Sequence[Spec]
DType = np.dtype[Any]
Index = tuple[Any, ...]  # of slices, numbers, None
