"""Steps of optimizers. Stock onnxruntime has none of them."""

from __future__ import annotations

from cases import case, fixed, integers, positive

DOMAIN = "ai.onnx.preview.training::"
RATE = positive(low=0.05, high=0.1)


def step(op: str, *inputs: object, kinds: int, **attributes: object) -> None:
    """One tensor, then two, at the first step and at a later one."""
    for count in (0, 3):
        for shapes in (((3, 4),), ((3, 4), (5,))):
            tensors = [make(*s) for make in inputs for s in shapes]
            case(
                DOMAIN + op, RATE, integers(count), *tensors, outputs=(kinds - 1) * len(shapes),
                gradient=False, ort=False, **attributes,
            )  # fmt: skip


step("Adagrad", fixed, fixed, positive, kinds=3)
step("Adagrad", fixed, fixed, positive, kinds=3, decay_factor=0.1, norm_coefficient=0.01)
step("Adam", fixed, fixed, fixed, positive, kinds=4)
step("Adam", fixed, fixed, fixed, positive, kinds=4,
     alpha=0.8, beta=0.9, norm_coefficient=0.1, norm_coefficient_post=0.2)  # fmt: skip
for mode in ("standard", "nesterov"):
    step("Momentum", fixed, fixed, fixed, kinds=3,
         alpha=0.9, beta=0.95, mode=mode, norm_coefficient=0.1)  # fmt: skip
