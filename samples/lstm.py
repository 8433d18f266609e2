"""Two stacked LSTM layers that predict the next letter."""

from __future__ import annotations

import onnx
from network import INT64, Network

LAYERS, HIDDEN, STEPS, LETTERS = 2, 64, 24, 128


def model() -> onnx.ModelProto:
    """`tokens` int64[24, batch] → `logits` float[24, batch, 128]."""
    net = Network("lstm", seed=3)
    tokens = net.input("tokens", INT64, [STEPS, "batch"])
    net.output("logits", [STEPS, "batch", LETTERS])

    table = net.weight("embed.weight", (LETTERS, HIDDEN), fan_in=1)
    x = net.op("Gather", "embed", table, tokens)

    forward = net.integers("forward", [1])
    for layer in range(LAYERS):
        x = lstm(net, f"lstm{layer}", x)
        x = net.op("Squeeze", f"lstm{layer}.squeeze", x, forward)

    weight = net.weight("head.weight", (HIDDEN, LETTERS), fan_in=HIDDEN)
    net.node("MatMul", "head", [x, weight], ["logits"])
    return net.model()


def lstm(net: Network, name: str, x: str) -> str:
    """Every hidden state, from a zero one on; [STEPS, 1, batch, HIDDEN]."""
    gates = (1, 4 * HIDDEN, HIDDEN)  # one direction; input, output, forget, cell
    weight = net.weight(f"{name}.weight", gates, fan_in=HIDDEN)
    recurrence = net.weight(f"{name}.recurrence", gates, fan_in=HIDDEN)
    bias = net.zeros(f"{name}.bias", (1, 8 * HIDDEN))
    return net.op("LSTM", name, x, weight, recurrence, bias, hidden_size=HIDDEN)
