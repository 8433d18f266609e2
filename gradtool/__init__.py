"""gradtool: the gradient compiler for ONNX files.

The public names are those of `gradtool.api`, loaded when first used, and the exceptions of
`gradtool.errors`.  Examples of their docstrings run in a folder with `samples/`, after
`import gradtool as gt` and `import numpy as np`.
"""

import sys

# `python -m` puts the current folder first into the path, before any line of ours: out it goes
# before anything is imported that may lie there.
if (
    sys.argv[:1] == ["-m"]
    and not sys.flags.safe_path
    and sys.orig_argv[-len(sys.argv)].partition(".")[0] in ("gradtool", "-mgradtool")
):
    del sys.path[0]

from gradtool.errors import (
    DeviceError,
    GradtoolError,
    GradtoolWarning,
    InvalidResult,
    MissingData,
    ModelError,
    NotDifferentiable,
    OverBudget,
    Unreachable,
    UnsupportedGradient,
    UsageError,
)
from gradtool.graph.injection import provide
from gradtool.text.version import VERSION

TYPE_CHECKING = False  # that of `typing`, which takes longer to import than a page of help takes
if TYPE_CHECKING:
    from typing import Any

    from gradtool.api import (
        Budget,
        Checkpoints,
        Plan,
        PlanFile,
        Result,
        Rewritten,
        Slowdown,
        Split,
        TrainingGraph,
        compare,
        explain,
        frontier,
        grad,
        load,
        load_plan,
        max_batch,
        mirror,
        plan,
        recompute,
        report,
        run,
        save,
        save_plan,
        split,
        verify,
    )
    from gradtool.graph.composites import composite
    from gradtool.kit.merge import merge_kit
    from gradtool.kit.write import write_kit
    from gradtool.losses.kinds import loss
    from gradtool.ops.gradients import gradient
    from gradtool.ops.kernels import kernel
    from gradtool.reports.notebook import Compared, Explained, Frontier, Report
    from gradtool.session import Session
    from gradtool.shapes.inference import shape
    from gradtool.training.callbacks import Watcher
    from gradtool.training.history import History
    from gradtool.training.trainer import Trainer

__version__ = VERSION

# fmt: off
_HOMES = dict.fromkeys(
    (
        "Budget", "Checkpoints", "Plan", "PlanFile",
        "Result", "Rewritten", "Slowdown", "Split", "TrainingGraph",
        "compare", "explain", "frontier", "grad", "load", "load_plan", "max_batch",
        "mirror", "plan", "recompute", "report", "run", "save", "save_plan", "split",
        "verify",
    ),
    "gradtool.api",
) | {
    "Compared": "gradtool.reports.notebook",
    "Explained": "gradtool.reports.notebook",
    "Frontier": "gradtool.reports.notebook",
    "Report": "gradtool.reports.notebook",
    "History": "gradtool.training.history",
    "Session": "gradtool.session",
    "Trainer": "gradtool.training.trainer",
    "Watcher": "gradtool.training.callbacks",
    "kernel": "gradtool.ops.kernels",
    "merge_kit": "gradtool.kit.merge",
    "write_kit": "gradtool.kit.write",
    "composite": "gradtool.graph.composites",
    "gradient": "gradtool.ops.gradients",
    "loss": "gradtool.losses.kinds",
    "shape": "gradtool.shapes.inference",
}
# fmt: on

# Who plays which role for the rooms below.
provide("bodies", "gradtool.exec.bodies")
provide("evaluate", "gradtool.exec.constant_folding:evaluate")
provide("rules", "gradtool.ops.gradients:RULES")
provide("timing", "gradtool.exec.timing:at_random")


def __getattr__(name: str) -> "Any":
    if name not in _HOMES:
        raise AttributeError(f"module 'gradtool' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"]


__all__ = [
    "Budget",
    "Checkpoints",
    "Compared",
    "DeviceError",
    "Explained",
    "Frontier",
    "GradtoolError",
    "GradtoolWarning",
    "History",
    "InvalidResult",
    "MissingData",
    "ModelError",
    "NotDifferentiable",
    "OverBudget",
    "Plan",
    "PlanFile",
    "Report",
    "Result",
    "Rewritten",
    "Session",
    "Slowdown",
    "Split",
    "Trainer",
    "TrainingGraph",
    "Unreachable",
    "UnsupportedGradient",
    "UsageError",
    "Watcher",
    "compare",
    "composite",
    "explain",
    "frontier",
    "grad",
    "gradient",
    "kernel",
    "load",
    "load_plan",
    "loss",
    "max_batch",
    "merge_kit",
    "mirror",
    "plan",
    "recompute",
    "report",
    "run",
    "save",
    "save_plan",
    "shape",
    "split",
    "verify",
    "write_kit",
]
