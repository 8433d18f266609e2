"""The bytes of a training step by who holds them: frozen weights, adapters, their state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradtool.graph.training_info import TrainingInfo
from gradtool.text.units import format_bytes

if TYPE_CHECKING:
    import onnx_ir as ir

    from gradtool.planning.plan import Plan

PROCESS = 150_000_000  # bytes of the interpreter and its libraries, and of the graphs of a step


def held_line(model: ir.Model, plan: Plan) -> str | None:
    """The holdings of a step with adapters in a line; None of one without."""
    info = TrainingInfo.of(model)
    if not info.lora:
        return None
    sizes = {
        name: value.const_value.nbytes
        for name, value in model.graph.initializers.items()
        if value.const_value is not None
    }
    adapters = {name for each in info.lora for name in each.names}
    state = {*info.state} - adapters
    parts = {
        "frozen weights": sizes.keys() - adapters - state, "adapters": adapters,
        "optimizer state": state,
    }  # fmt: skip
    told = [
        f"{what} {format_bytes(sum(sizes.get(name, 0) for name in names))}"
        for what, names in parts.items() if names
    ]  # fmt: skip
    return (
        f"{', '.join(told)}; the arena with all that a step computes {format_bytes(plan.peak)}; "
        f"the process besides about {format_bytes(PROCESS)}"
    )
