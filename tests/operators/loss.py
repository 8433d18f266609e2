"""Cases of the loss family."""

from __future__ import annotations

import numpy as np
from cases import case, fixed, floats, integers, positive

SHAPES = (
    ((4, 3), [0, 2, 1, 2]),
    ((2, 3, 4), [[0, 1, 2, 0], [2, 2, 1, 0]]),
    ((1, 3, 2, 2), [[[0, 1], [2, 2]]]),
)
NAMES = ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
for name in NAMES:
    for shape, labels in SHAPES:
        for reduction in ("none", "sum", "mean"):
            for ignored in (None, 2):
                options = {"reduction": reduction} | ({"ignore_index": 2} if ignored else {})
                case(name, shape, integers(labels), **options)
                case(name, shape, integers(labels), positive(3), note="w", **options)
    case(name, (4, 3), np.array([0, 1, 2, 1], np.int32), note="int32")
    case(name, (3, 3), integers([0, -1, 2]), ignore_index=-1)
    case(name, (3, 3), integers([0, 255, 2]), positive(3), ignore_index=255)
    case(name, (700, 30), integers([i * 7 % 30 for i in range(700)]), note="rows", ignore_index=4)
    case(
        name,
        (2, 3, 1000),
        integers([[i % 3 for i in range(1000)]] * 2),
        note="columns",
        gradient=False,
    )
for reduction in ("none", "sum", "mean"):
    for weights in (None, positive(3)):
        case(
            "SoftmaxCrossEntropyLoss", (4, 3), integers([0, 2, 1, 2]), weights,
            outputs=2, reduction=reduction, ignore_index=1,
        )  # fmt: skip
case("SoftmaxCrossEntropyLoss", (1, 3, 2, 2), integers([[[0, 1], [2, 2]]]), outputs=2)

BOTH = floats(3, 4, low=0.2, high=0.8), floats(3, 4, low=0.1, high=0.9)
case("ai.gradtool::BinaryCrossEntropy", *BOTH)
case(
    "ai.gradtool::BinaryCrossEntropy",
    floats(70000, low=0.2, high=0.8),
    floats(70000, low=0, high=1),
    note="blocks",
)

# Cross-entropy of the scores of a linear layer, whose scores are never whole.
LINEAR = "ai.gradtool::LinearCrossEntropy"
for turned in (0, 1):
    for bias, more in (
        (None, {}), ((6,), {}), (None, {"scale": 0.5}), ((6,), {"softcap": 1.5, "scale": 2.0}),
    ):  # fmt: skip
        given = (4, 3), integers([0, 5, 2, -1]), ((6, 3) if turned else (3, 6)), bias
        options = {"ignore_index": -1, "transB": turned} | more
        case(LINEAR, *given, outputs=2, **options)
        case(LINEAR, *given, outputs=3, even=1, **options)
        case(LINEAR, *given, fixed(6, low=0.1), outputs=3, even=1, **options)
        case(LINEAR, *given, None, (4, 2), (2, 6), outputs=2, **options)
case(LINEAR, (3, 2), np.array([1, 0, 4], np.int32), (2, 5), note="int32")
case(LINEAR, (1100, 2), integers([i * 7 % 1000 for i in range(1100)]), (1000, 2), (1000,),
     transB=1, note="blocks", gradient=False)  # fmt: skip

# Weights of few bits, which are frozen.
rng = np.random.default_rng(0)


def codes(*shape: int) -> np.ndarray:
    return rng.integers(0, 256, shape, np.uint8)


def matrix(bits: int, form: str) -> tuple[list, dict]:
    """Scale, zero and groups of 7 classes by 20 columns, and their attributes."""
    scale = fixed(7, 2, low=0.3 / 2**bits, high=1.5 / 2**bits, gap=0)
    zero = {"zero": codes(7, -(-2 * bits // 8)), "offset": fixed(7, 2, low=0, high=9)}
    groups = [rng.integers(0, 2, 20).astype(np.int32)] if "groups" in form else []
    held = [scale, zero.get(form.split(maxsplit=1)[0]), *groups]
    how = {"bits": bits, "block_size": 16, "size": 20}
    return held, how | ({"values": form} if form == "nf4" else {})


for bits in (2, 4, 8):
    for form in ("", "zero", "offset", "zero groups", "- groups", *["nf4"] * (bits == 4)):
        held, how = matrix(bits, form or "-")
        given = (4, 20), integers([0, 6, 2, -1]), codes(7, 2, 2 * bits)
        how |= {"ignore_index": -1, "transB": 1}
        case(LINEAR, *given, None, None, None, None, *held, outputs=2, **how)
        how |= {"even": 1, "softcap": 1.5, "scale": 2.0, "opset": 21}
        case(LINEAR, *given, (7,), None, (4, 2), (2, 7), *held, outputs=3, **how)
held = [fixed(300, 40, low=-0.01, high=0.01, gap=0)]
case(LINEAR, (3, 635), integers([1, 0, 299]), codes(300, 40, 8), None, None, None, None, *held,
     outputs=2, transB=1, bits=4, block_size=16, size=635, note="cut")  # fmt: skip
