"""Steps of optimizers, each one pass over a parameter; outputs may be the inputs themselves.

They compute the formulas of `gradtool.operators.updates`; no workspace.  Numbers may be arrays of
one element, which are read whenever a call runs.
"""

from __future__ import annotations

from gradtool.native.call import Array, Call, Signature

Number = float | Array

SGD = Signature(
    "sgd", "x g v new_x new_v", "count nesterov slots", "rate momentum dampened l2 before"
)
ADAM = Signature(
    "adam", "x g v h new_x new_v new_h", "count slots", "rate share1 share2 epsilon root l2 before"
)
ADAGRAD = Signature("adagrad", "x g h new_x new_h", "count slots", "rate epsilon l2")


def momentum(
    x: Array, g: Array, v: Array | None, new_x: Array, new_v: Array | None, *, rate: Number,
    momentum: Number = 0.0, dampened: Number = 1.0, nesterov: bool = False, l2: Number = 0.0,
    before: Number = 1.0,
) -> Call:  # fmt: skip
    """`before · x - rate · v`, `v = momentum · v + dampened · g`; Nesterov: `g + momentum · v`.

    Without `v` and `new_v` it is `before · x - rate · g`.
    """
    return SGD.bind(
        x=x, g=g, v=v, new_x=new_x, new_v=new_v, count=x.size, nesterov=int(nesterov), rate=rate,
        momentum=momentum, dampened=dampened, l2=l2, before=before,
    )  # fmt: skip


def adam(
    x: Array, g: Array, v: Array, h: Array, new_x: Array, new_v: Array, new_h: Array, *,
    rate: Number, share1: Number = 0.1, share2: Number = 0.001, epsilon: float = 1e-08,
    root: Number = 1.0, l2: Number = 0.0, before: Number = 1.0,
) -> Call:  # fmt: skip
    """`before · x - rate · v / (√h / root + epsilon)` of running means v and h.

    The corrections for t steps are in `rate` and `root`: `lr / (1 - β₁ᵗ)` and `√(1 - β₂ᵗ)` are
    those of Kingma and Ba.  AdamW is `before = 1 - lr · decay`.
    """
    return ADAM.bind(
        x=x, g=g, v=v, h=h, new_x=new_x, new_v=new_v, new_h=new_h, count=x.size, rate=rate,
        share1=share1, share2=share2, epsilon=epsilon, root=root, l2=l2, before=before,
    )  # fmt: skip


def adagrad(
    x: Array, g: Array, h: Array, new_x: Array, new_h: Array, *, rate: Number,
    epsilon: float = 1e-10, l2: Number = 0.0,
) -> Call:  # fmt: skip
    """`x - rate · g / (√h + epsilon)` of `h = h + g²`."""
    return ADAGRAD.bind(
        x=x, g=g, h=h, new_x=new_x, new_h=new_h, count=x.size, rate=rate, epsilon=epsilon, l2=l2
    )
