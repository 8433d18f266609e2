"""Cases of the recurrent family: X [T, B, I], weights of D directions, H hidden numbers."""

from __future__ import annotations

import numpy as np

from cases import case, floats

T, B, I, H = 4, 3, 2, 2
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
        floats(*first, I), weight(gates * H, I), weight(gates * H, H),
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
