"""Random stacks of LSTM and GRU, some of whose results are read often."""

from __future__ import annotations

import numpy as np
from conftest import build

HEADER = '<ir_version: 10, opset_import: ["" : 20]>'
GATES = {"LSTM": 4, "GRU": 3}


def recurrent_network(seed):
    """Layers of random directions and options, a skip between some, and the mean of the last."""
    rng = np.random.default_rng(seed)
    times, batch, size = int(rng.integers(1, 7)), int(rng.integers(1, 5)), int(rng.choice([3, 16]))
    hidden = int(rng.choice([4, 17]))
    weights, lines, read = {"lens": rng.integers(1, times + 1, batch).astype(np.int32)}, [], "x"
    for layer in range(int(rng.integers(1, 4))):
        kind = str(rng.choice(["LSTM", "LSTM", "GRU"]))
        direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
        ways, gates = 2 if direction == "bidirectional" else 1, GATES[kind]
        shapes = {
            "w": (ways, gates * hidden, size), "r": (ways, gates * hidden, hidden),
            "b": (ways, 2 * gates * hidden), "p": (ways, 3 * hidden),
        }  # fmt: skip
        for name, shape in shapes.items():
            weights[f"{name}{layer}"] = (rng.standard_normal(shape) / 4).astype(np.float32)
        taken = [f"{name}{layer}" for name in "wr"]
        taken += [str(rng.choice([f"b{layer}", ""])), str(rng.choice(["lens", ""]))]
        if kind == "LSTM" and rng.integers(2):
            taken += ["", "", f"p{layer}"]
        results = [f"y{layer}", f"h{layer}", f"c{layer}"][: 3 if kind == "LSTM" else 2]
        options = f'hidden_size = {hidden}, direction = "{direction}"'
        lines.append(f"{', '.join(results)} = {kind} <{options}> ({read}, {', '.join(taken)})")
        lines.append(f"t{layer} = Transpose <perm = [0, 2, 1, 3]> (y{layer})")
        lines.append(f"z{layer} = Reshape (t{layer}, shape{layer})")
        size = ways * hidden
        weights[f"shape{layer}"] = np.array([times, batch, size])
        read = f"z{layer}"
        if rng.integers(2):
            lines.append(f"a{layer} = Tanh (z{layer})")
            read = f"a{layer}"
    inputs = int(weights["w0"].shape[2])
    lines += [f"last = Mul ({read}, {read})", "loss = ReduceMean <keepdims = 0> (last)"]
    text = f"net (float[{times}, {batch}, {inputs}] x) => (float loss) {{ {'; '.join(lines)} }}"
    words = set(text.replace(",", " ").replace(")", " ").replace("(", " ").split())
    used = {name: array for name, array in weights.items() if name in words}
    return build(text.replace("; ", "\n"), HEADER, **used)
