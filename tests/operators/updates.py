"""Updates of parameters: each formula with all of its optional inputs, and with none of them."""

from __future__ import annotations

from typing import Any

from cases import case, fixed, positive

DOMAIN = "ai.gradtool::"
N = positive(low=0.05, high=0.5)  # a number
SHAPES = ((), (5,), (3, 4))


def update(name: str, *inputs: Any, **options: Any) -> None:
    """A formula of tensors of one shape, each given by how it is drawn, and of numbers."""
    for shape in SHAPES:
        given = [make(*shape) if callable(make) else make for make in inputs]
        case(DOMAIN + name, *given, gradient=False, **options)


ADAM = {"epsilon": 1e-6, "outputs": 3}
update("SgdUpdate", fixed, fixed, N, None, None)
update("SgdUpdate", fixed, fixed, N, N, N)
for nesterov in (0, 1):
    update("MomentumUpdate", fixed, fixed, N, None, N, None, fixed, nesterov=nesterov, outputs=2)
    update("MomentumUpdate", fixed, fixed, N, N, N, N, fixed, nesterov=nesterov, outputs=2)
    update("MuonDirection", fixed, N, N, fixed, nesterov=nesterov, outputs=2)
update("AdamUpdate", fixed, fixed, N, N, N, N, None, None, fixed, positive, **ADAM)
update("AdamUpdate", fixed, fixed, N, N, N, N, N, N, fixed, positive, **ADAM)
update("AdagradUpdate", fixed, fixed, N, None, positive, epsilon=1e-6, outputs=2)
update("AdagradUpdate", fixed, fixed, N, N, positive, epsilon=1e-6, outputs=2)
RMSPROP = (fixed, fixed, N, N)
update("RmspropUpdate", *RMSPROP, None, None, positive, epsilon=1e-6, centered=0, outputs=2)
update("RmspropUpdate", *RMSPROP, N, N, positive, fixed, epsilon=1e-6, centered=0, outputs=3)
# A mean of squares is above the square of the mean.
MEANS = (lambda *s: positive(*s, low=1, high=2), lambda *s: fixed(*s, low=-0.5, high=0.5))
update("RmspropUpdate", *RMSPROP, None, None, *MEANS, epsilon=1e-6, centered=1, outputs=3)
update("RmspropUpdate", *RMSPROP, N, N, *MEANS, fixed, epsilon=1e-6, centered=1, outputs=4)
update("LionUpdate", fixed, fixed, N, N, N, None, fixed, outputs=2)
update("LionUpdate", fixed, fixed, N, N, N, N, fixed, outputs=2)
update("LambDirection", fixed, fixed, N, N, N, N, None, fixed, positive, **ADAM)
update("LambDirection", fixed, fixed, N, N, N, N, N, fixed, positive, **ADAM)
update("VarianceDirection", fixed, N, positive, epsilon=1e-6, outputs=2)
case(DOMAIN + "FactoredDirection", fixed(3, 4), positive(3, 1), positive(1, 4), epsilon=1e-6,
     gradient=False)  # fmt: skip
case(DOMAIN + "FactoredDirection", fixed(2, 3, 4), positive(2, 3, 1), positive(2, 1, 4),
     epsilon=1e-6, gradient=False)  # fmt: skip
