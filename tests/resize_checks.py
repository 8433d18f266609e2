"""What is asked of a Resize: forward as in onnxruntime, both gradients those of the exact map."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from resizes import Resizing, model_of

import gradtool as gt

Array = np.ndarray[Any, Any]


class Stock:
    """A file in stock onnxruntime."""

    def __init__(self, path: Path) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        self.session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def __call__(self, feeds: dict[str, Array], *names: str) -> list[Array]:
        wanted = {i.name for i in self.session.get_inputs()}
        given = {k: v for k, v in feeds.items() if k in wanted}
        found: list[Array] = self.session.run(list(names) or None, given)
        return found


def jacobian(forward: Any, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """`[elements of x, *shape of y]` of a map that is linear but for what it has at zero."""
    units = np.eye(int(np.prod(shape)), dtype=np.float32).reshape(-1, *shape)
    offset = np.asarray(forward(np.zeros(shape, np.float32)), np.float64)
    return np.stack([forward(u) - offset for u in units]), offset
