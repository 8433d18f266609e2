"""Cases of the recurrent family: X [T, B, I], weights of D directions, H hidden numbers."""

from __future__ import annotations

import numpy as np
from cases import case, floats

T, B, IN, H = 4, 3, 2, 2
LENGTHS = np.asarray([4, 2, 3], dtype=np.int32)


def recurrent(op, gates, *, outputs, b=False, lens=None, h=False, c=False, p=False, **options):
    """A case with the optional inputs that are named; weights small, so that gates are open."""
    directions = 2 if options.get("direction") == "bidirectional" else 1
    first = (B, T) if options.get("layout") else (T, B)
    state = (B, directions, H) if options.get("layout") else (directions, B, H)
    ort = options.pop("ort", True) and not options.get("layout")  # onnxruntime refuses layout=1

    def weight(*shape):
        return floats(directions, *shape, low=-0.8, high=0.8)

    inputs = [
        floats(*first, IN), weight(gates * H, IN), weight(gates * H, H),
        weight(2 * gates * H) if b else None, lens, floats(*state) if h else None,
    ]  # fmt: skip
    if op == "LSTM":
        inputs += [floats(*state) if c else None, weight(3 * H) if p else None]
    while inputs[-1] is None:
        inputs.pop()
    case(op, *inputs, outputs=outputs, opset=22, ort=ort, hidden_size=H, **options)


DIRECTIONS = ("forward", "reverse", "bidirectional")

for direction in DIRECTIONS:
    for layout in (0, 1):
        recurrent("LSTM", 4, outputs=3, direction=direction, layout=layout)
        recurrent("LSTM", 4, outputs=3, b=True, h=True, c=True, direction=direction, layout=layout)
        recurrent(
            "LSTM", 4, outputs=3, b=True, lens=LENGTHS, h=True, c=True, p=True,
            direction=direction, layout=layout,
        )  # fmt: skip
        recurrent("LSTM", 4, outputs=3, lens=LENGTHS, direction=direction, layout=layout)
    recurrent("LSTM", 4, outputs=3, b=True, p=True, direction=direction)
recurrent("LSTM", 4, outputs=1, b=True, h=True, c=True)
recurrent("LSTM", 4, outputs=2, b=True, h=True)
recurrent("LSTM", 4, outputs=3, c=True, clip=0.6)
recurrent("LSTM", 4, outputs=3, c=True, p=True, clip=0.6)
recurrent("LSTM", 4, outputs=3, b=True, h=True, c=True, input_forget=1)
recurrent("LSTM", 4, outputs=3, b=True, c=True, p=True, input_forget=1)
for lens in ([0, 1, 4], [2, 0, 1]):
    for direction in DIRECTIONS:
        recurrent(
            "LSTM", 4, outputs=3, lens=np.asarray(lens, dtype=np.int32), h=True, c=True,
            direction=direction,
        )  # fmt: skip
for op, gates in (("GRU", 3), ("RNN", 1)):
    forms = [{"linear_before_reset": 0}, {"linear_before_reset": 1}] if op == "GRU" else [{}]
    for form in forms:
        for direction in DIRECTIONS:
            for layout in (0, 1):
                options = {"direction": direction, "layout": layout, **form}
                recurrent(op, gates, outputs=2, **options)
                recurrent(op, gates, outputs=2, b=True, h=True, **options)
                recurrent(op, gates, outputs=2, b=True, lens=LENGTHS, h=True, **options)
                recurrent(op, gates, outputs=2, lens=LENGTHS, **options)
        recurrent(op, gates, outputs=1, b=True, h=True, **form)
        recurrent(op, gates, outputs=2, b=True, clip=0.7, **form)
        empty = np.asarray([0, 1, 4], dtype=np.int32)
        recurrent(op, gates, outputs=2, lens=empty, h=True, **form)

# onnxruntime gives Affine, ThresholdedRelu and ScaledTanh other default parameters than the
# operators of these names have.
PARAMETERS = {
    "Affine": (0.7, 0.2), "LeakyRelu": (0.3,), "ThresholdedRelu": (0.1,), "ScaledTanh": (1.3, 0.7),
    "HardSigmoid": (0.3, 0.4), "Elu": (0.8,),
}  # fmt: skip
PLAIN = ("Relu", "Tanh", "Sigmoid", "Softsign", "Softplus", "LeakyRelu", "HardSigmoid", "Elu")
for name in PLAIN:
    recurrent("RNN", 1, outputs=2, b=True, h=True, activations=[name])
for name, (alpha, *beta) in PARAMETERS.items():
    given = {"activation_alpha": [alpha], **({"activation_beta": beta} if beta else {})}
    recurrent("RNN", 1, outputs=2, b=True, h=True, activations=[name], **given)
    recurrent("RNN", 1, outputs=2, b=True, clip=0.7, activations=[name], **given)
for name in ("Affine", "ThresholdedRelu", "ScaledTanh"):
    recurrent("RNN", 1, outputs=2, b=True, activations=[name], ort=False)
recurrent("LSTM", 4, outputs=3, h=True, c=True, activations=["HardSigmoid", "Softsign", "Elu"])
recurrent(
    "LSTM", 4, outputs=3, b=True, c=True, p=True, direction="bidirectional", clip=1.1,
    activations=["Sigmoid", "Tanh", "Softplus", "HardSigmoid", "ScaledTanh", "Affine"],
    activation_alpha=[0.3, 1.2, 0.6], activation_beta=[0.4, 0.8, 0.1],
)  # fmt: skip
recurrent("LSTM", 4, outputs=3, b=True, c=True, activations=["Tanh", "Sigmoid", "Sigmoid"])
recurrent("LSTM", 4, outputs=3, c=True, p=True, activations=["Tanh", "Sigmoid", "Sigmoid"])
for linear in (0, 1):
    recurrent(
        "GRU", 3, outputs=2, b=True, activations=["HardSigmoid", "LeakyRelu"],
        linear_before_reset=linear,
    )  # fmt: skip
    recurrent(
        "GRU", 3, outputs=2, b=True, direction="bidirectional", linear_before_reset=linear,
        activations=["Sigmoid", "Tanh", "Softsign", "Softplus"],
    )  # fmt: skip
