"""A model that recompute pays for: layers of a product and two cheap functions of it."""

from __future__ import annotations

import json

import numpy as np
import onnx
from conftest import build

LAYERS = 3


def deep(batch: str = "batch", layers: int = LAYERS) -> onnx.ModelProto:
    """`layers` times MatMul, Tanh and Sin over rows of 16."""
    lines = []
    for n in range(layers):
        source = f"s{n - 1}" if n else "x"
        lines.append(f"m{n} = MatMul ({source}, w{n}) t{n} = Tanh (m{n}) s{n} = Sin (t{n})")
    lines.append(f"loss = ReduceMean <keepdims = 0> (s{layers - 1})")
    body = f"deep (float[{batch}, 16] x) => (float loss) {{ {' '.join(lines)} }}"
    rng = np.random.default_rng(0)
    weights = {f"w{n}": rng.standard_normal((16, 16)).astype(np.float32) for n in range(layers)}
    return build(body, **weights)


def document(outcome):
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def report(run, *arguments):
    return document(run("mirror", "--report", *arguments, "--format", "json"))
