"""Random networks of elementwise operators, some of whose results are read often."""

from __future__ import annotations

import numpy as np
from conftest import build

UNARY = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Softplus", "HardSwish", "Elu", "Gelu")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
HEADER = '<ir_version: 10, opset_import: ["" : 20]>'


def elementwise_network(seed):
    """A random graph of elementwise operators, some of whose results are read often."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(rng.choice([1, 3, 8, 40])) for _ in range(rng.integers(1, 4)))
    shapes = [tuple(n if rng.integers(3) else 1 for n in shape) for _ in range(3)]
    weights = {f"w{i}": rng.standard_normal(s).astype(np.float32) for i, s in enumerate(shapes)}
    values, lines = ["x", *weights], []
    for i in range(int(rng.integers(3, 16))):
        recent = values[-3:] if rng.integers(2) else values
        a, b = (str(rng.choice(recent)) for _ in range(2))
        op = str(rng.choice(UNARY if rng.integers(2) else BINARY))
        lines.append(f"v{i} = {op} ({a}{f', {b}' if op in BINARY else ''})")
        values.append(f"v{i}")
    axes = ", ".join(map(str, shape))
    lines += [f"y = Add (x, {values[-1]})", "loss = ReduceSum <keepdims = 0> (y)"]
    text = f"net (float[{axes}] x) => (float loss) {{ {'; '.join(lines)} }}"
    return build(text.replace("; ", "\n"), HEADER, **weights)
