"""Recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np
from drawn.case import Case, Draw, Given, draws

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@draws("RNN", "GRU", "LSTM")
def recurrent(d: Draw) -> Case:
    gates, time, batch, width = GATES[d.op], d.int(1, 4), d.int(1, 3), d.int(1, 3)
    hidden = d.int(1, 3)
    given: dict[str, Any] = d.maybe(
        direction=d.one("forward", "reverse", "bidirectional"), layout=d.one(0, 0, 0, 1)
    )
    directions = 2 if given.get("direction") == "bidirectional" else 1
    if d.flag(0.2):
        given["clip"] = 1.3
    if d.op == "GRU":
        given |= d.maybe(linear_before_reset=d.int(0, 1))
    if d.op == "LSTM" and d.flag(0.2):
        given["input_forget"] = 1
    if d.op == "RNN" and d.flag(0.3):
        given["activations"] = [d.one("Tanh", "Sigmoid", "Softsign", "Softplus")] * directions
    front = bool(given.get("layout"))
    x = d.x((batch, time, width) if front else (time, batch, width))
    state = (batch, directions, hidden) if front else (directions, batch, hidden)

    def weight(*shape: int) -> Given:
        return d.w((directions, *shape), -0.8, 0.8)

    lens = d.rng.integers(0 if d.flag(0.2) else 1, time + 1, batch).astype(np.int32)
    inputs = [
        x, weight(gates * hidden, width), weight(gates * hidden, hidden),
        weight(2 * gates * hidden) if d.flag() else None, d.fixed(lens) if d.flag(0.4) else None,
        d.x(state, -0.8, 0.8) if d.flag() else None,
    ]  # fmt: skip
    outputs = d.int(1, 2)
    if d.op == "LSTM":
        outputs = d.int(1, 3)
        inputs += [
            d.x(state, -0.8, 0.8) if d.flag() else None,
            weight(3 * hidden) if d.flag(0.3) else None,
        ]
    return d.case(*inputs, outputs=outputs, hidden_size=hidden, opset=(18, 22), rough=8.0, **given)
