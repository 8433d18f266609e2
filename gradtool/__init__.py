"""gradtool: the gradient compiler for ONNX files.

The public names are those of `gradtool.api`, loaded when first used, and the exceptions of
`gradtool.errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradtool.errors import (
    DeviceError,
    GradtoolError,
    InvalidResult,
    MissingData,
    ModelError,
    NotDifferentiable,
    Unreachable,
    UnsupportedGradient,
    UsageError,
)

if TYPE_CHECKING:
    from gradtool.api import (
        Plan,
        Result,
        Rewritten,
        Split,
        TrainingGraph,
        frontier,
        grad,
        load,
        mirror,
        plan,
        recompute,
        report,
        run,
        save,
        split,
    )
    from gradtool.exec.kernel import kernel
    from gradtool.functions import composite
    from gradtool.functions.inference import shape
    from gradtool.gradients import gradient
    from gradtool.losses import loss

__version__ = "0.1.0"

# fmt: off
_HOMES = dict.fromkeys(
    (
        "Plan", "Result", "Rewritten", "Split", "TrainingGraph",
        "frontier", "grad", "load", "mirror", "plan", "recompute", "report", "run", "save", "split",
    ),
    "gradtool.api",
) | {
    "kernel": "gradtool.exec.kernel",
    "composite": "gradtool.functions",
    "gradient": "gradtool.gradients",
    "loss": "gradtool.losses",
    "shape": "gradtool.functions.inference",
}
# fmt: on


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gradtool' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


__all__ = [
    "DeviceError",
    "GradtoolError",
    "InvalidResult",
    "MissingData",
    "ModelError",
    "NotDifferentiable",
    "Plan",
    "Result",
    "Rewritten",
    "Split",
    "TrainingGraph",
    "Unreachable",
    "UnsupportedGradient",
    "UsageError",
    "composite",
    "frontier",
    "grad",
    "gradient",
    "kernel",
    "load",
    "loss",
    "mirror",
    "plan",
    "recompute",
    "report",
    "run",
    "save",
    "shape",
    "split",
]
