"""Steps of optimizers, each one pass over a parameter; outputs may be the inputs themselves.

They compute what `gradtool.passes.optimizer` and `gradtool.kernels.training` do; no workspace.
"""

from __future__ import annotations

from gradtool.native import SLOTS
from gradtool.native.call import Array, Call, Signature

SGD = Signature("sgd", "x g v new_x new_v", "count nesterov slots", "rate momentum dampened l2")
ADAM = Signature(
    "adam",
    "x g v h new_x new_v new_h",
    "count slots",
    "rate beta1 beta2 epsilon root l2 before after",
)
ADAGRAD = Signature("adagrad", "x g h new_x new_h", "count slots", "rate epsilon l2")


def momentum(
    x: Array, g: Array, v: Array | None, new_x: Array, new_v: Array | None, *,
    rate: float, alpha: float = 0.0, beta: float = 1.0, nesterov: bool = False,
    norm_coefficient: float = 0.0, instructions: str | None = None,
) -> Call:  # fmt: skip
    """`x - rate · v`, or `x - rate · (g + alpha · v)` for Nesterov, of `v = alpha · v + beta · g`.

    Without `v` and `new_v` it is `x - rate · g`.
    """
    return SGD.bind(
        instructions, x=x, g=g, v=v, new_x=new_x, new_v=new_v, count=x.size,
        nesterov=int(nesterov), slots=SLOTS, rate=rate, momentum=alpha, dampened=beta,
        l2=norm_coefficient,
    )  # fmt: skip


def adam(
    x: Array, g: Array, v: Array, h: Array, new_x: Array, new_v: Array, new_h: Array, *,
    rate: float, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8,
    root: float = 1.0, norm_coefficient: float = 0.0, before: float = 1.0, after: float = 1.0,
    instructions: str | None = None,
) -> Call:  # fmt: skip
    """`after · (before · x - rate · v / (root · √h + epsilon))` of running means v and h.

    The corrections for t steps are in `rate` and `root`: `lr / (1 - beta1ᵗ)` and
    `1 / √(1 - beta2ᵗ)` are those of Kingma and Ba, `lr · √(1 - beta2ᵗ) / (1 - beta1ᵗ)` and 1 those
    of ai.onnx.preview.training.  AdamW is `before = 1 - lr · decay`.
    """
    return ADAM.bind(
        instructions, x=x, g=g, v=v, h=h, new_x=new_x, new_v=new_v, new_h=new_h, count=x.size,
        slots=SLOTS, rate=rate, beta1=beta1, beta2=beta2, epsilon=epsilon, root=root,
        l2=norm_coefficient, before=before, after=after,
    )  # fmt: skip


def adagrad(
    x: Array, g: Array, h: Array, new_x: Array, new_h: Array, *,
    rate: float, epsilon: float = 1e-10, norm_coefficient: float = 0.0,
    instructions: str | None = None,
) -> Call:  # fmt: skip
    """`x - rate · g / (√h + epsilon)` of `h = h + g²`."""
    return ADAGRAD.bind(
        instructions, x=x, g=g, h=h, new_x=new_x, new_h=new_h, count=x.size, slots=SLOTS,
        rate=rate, epsilon=epsilon, l2=norm_coefficient,
    )  # fmt: skip
