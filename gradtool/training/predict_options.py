"""How the outputs of a model are computed for all examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gradtool.training.options import BATCH
from gradtool.workloads.options import option


@dataclass(frozen=True)
class PredictOptions:
    """How to predict; see `gradtool predict`."""

    outputs: Sequence[str] = option(
        "texts", (), "The outputs to write; default: all.", metavar="NAME", group="Results"
    )
    metric: Sequence[str] = option(
        "texts", (), "What to print of outputs and labels: any of gradtool train but loss, or "
        "confusion, a table.", metavar="NAME[:OUTPUT[:LABELS]]", group="Evaluation")  # fmt: skip
    batch: int = option(
        "whole", BATCH, "Examples that are computed at once.", least=1, metavar="N", group="Data"
    )
    device: str = option(
        "text", "auto", "Where to compute.", metavar="auto|cpu|cuda[:N]", group="Device"
    )
    kernels: Literal["auto", "numpy", "native"] = option(
        "choice", "auto", "What computes on the CPU, as for gradtool train.",
        choices=("auto", "numpy", "native"), group="Device")  # fmt: skip

    @property
    def place(self) -> str:
        """The device to open: native kernels are the CPU's, where nobody says another one."""
        return "cpu" if self.kernels == "native" and self.device == "auto" else self.device
