"""An LSTM between layers that are quantised too, and what it computes in float64 with PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

Array = np.ndarray[Any, Any]
BATCH, SIZE, HIDDEN = 4, 8, 6


def recurrent(rng: np.random.Generator) -> tuple[list[Any], dict[str, Array]]:
    """One or two directions, with and without lengths, biases, states to begin with, peepholes."""
    make = helper.make_node
    direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
    ways = 2 if direction == "bidirectional" else 1
    shapes = {
        "w": (ways, 4 * HIDDEN, SIZE), "r": (ways, 4 * HIDDEN, HIDDEN), "b": (ways, 8 * HIDDEN),
        "h0": (ways, BATCH, HIDDEN), "c0": (ways, BATCH, HIDDEN), "p": (ways, 3 * HIDDEN),
        "w1": (ways * HIDDEN, 6), "gain": (6,), "shift": (6,), "w2": (6, 5),
    }  # fmt: skip
    held = {k: rng.normal(size=s).astype(np.float32) * 0.5 for k, s in shapes.items()}
    held["lengths"] = rng.integers(1, 4, BATCH).astype(np.int32)
    held["flat"] = np.asarray([0, BATCH, ways * HIDDEN])
    optional = [["b"], ["lengths"], ["h0", "c0"], ["p"]]
    read = [n for group in optional for n in (group if rng.integers(2) else [""] * len(group))]
    made = ["states", "last", "cell"][: int(rng.integers(1, 4))]
    nodes = [
        make("LSTM", ["x", "w", "r", *read], made, hidden_size=HIDDEN, direction=direction),
        make("Transpose", ["states"], ["t"], perm=[0, 2, 1, 3]),
        make("Reshape", ["t", "flat"], ["f"]), make("MatMul", ["f", "w1"], ["h"]),
        make("LayerNormalization", ["h", "gain", "shift"], ["n"], axis=-1),
        make("MatMul", ["n", "w2"], ["y"]),
    ]  # fmt: skip
    for index, name in enumerate(made[1:]):
        nodes.insert(1, make("ReduceSum", [name, "ways"], [f"s{index}"], keepdims=0))
        nodes[-1:] = [make("MatMul", [f"s{index}", "w3"], [f"m{index}"]),
                      make("Add", ["n", f"m{index}"], [f"n{index}"]), nodes[-1]]  # fmt: skip
        nodes[-1].input[0] = f"n{index}"
        nodes[-2].input[0] = "n" if not index else f"n{index - 1}"
    held["ways"] = np.asarray([0])
    held["w3"] = rng.normal(size=(HIDDEN, 6)).astype(np.float32)
    used = {name for node in nodes for name in node.input}
    return nodes, {name: value for name, value in held.items() if name in used}


def lstm(given: Any, x: Any, w: Any, r: Any, b: Any, lengths: Any, h: Any, c: Any, p: Any) -> Any:
    """`[T, directions, N, H]`, the last states and cells; `w` and `r` as an LSTM has them."""
    import torch

    ways, count, hidden = w.shape[0], x.shape[1], r.shape[2]
    zeros = torch.zeros(ways, count, hidden, dtype=torch.float64)
    b = torch.zeros(ways, 8 * hidden) if b is None else b
    p = torch.zeros(ways, 3 * hidden) if p is None else p
    lengths = torch.full((count,), len(x)) if lengths is None else lengths
    states, last = [], []
    for way in range(ways):
        state, cell = ((zeros if v is None else v)[way] for v in (h, c))
        times, made = list(range(len(x))), [zeros[way]] * len(x)
        if way or given["direction"] == b"reverse":
            times.reverse()
        pi, po, pf = p[way].split(hidden)
        for time in times:
            gates = x[time] @ w[way].T + state @ r[way].T + sum(b[way].split(4 * hidden))
            i, o, f, new = gates.split(hidden, 1)
            after = (f + pf * cell).sigmoid() * cell + (i + pi * cell).sigmoid() * new.tanh()
            out = (o + po * after).sigmoid() * after.tanh()
            there = (time < lengths)[:, None]
            cell, state = torch.where(there, after, cell), torch.where(there, out, state)
            made[time] = torch.where(there, out, zeros[way])
        states.append(torch.stack(made))
        last.append((state, cell))
    return (torch.stack(states, 1), *(torch.stack(v) for v in zip(*last, strict=True)))
