"""What happens in a training as events that TensorBoard draws; the extra `tensorboard`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from gradtool.errors import UsageError
from gradtool.text.extras import install
from gradtool.training.callbacks import Begun, Watcher

MISSING = f"TensorBoard events need tensorboardX: {install('tensorboard')}"


class TensorBoard(Watcher):
    """Writes events into a folder: losses, rates, evaluations, and scales that were too large.

    A training that goes on from a checkpoint takes back what was told of the steps after it.
    Events have times in them: no two files are the same.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Events go into `folder`, which is made when training begins.

        Raises:
            UsageError: the extra is missing.
        """
        try:
            import tensorboardX
        except ImportError as error:
            raise UsageError(MISSING) from error
        self._open: Any = tensorboardX.SummaryWriter
        self._folder = os.fspath(folder)
        self._writer: Any = None

    def begun(self, begun: Begun) -> None:
        self.ended()
        try:
            self._writer = self._open(
                self._folder, purge_step=begun.first + 1, filename_suffix=f".{begun.first}"
            )
        except OSError as error:
            raise UsageError(f"{self._folder}: {error.strerror or error}") from error

    def stepped(self, step: int, epoch: int, loss: float, rate: float, planned: int) -> None:
        self._tell(step, {
            "training/loss": loss, "training/lr": rate, "training/epoch": epoch,
            "training/planned_bytes": planned,
        })  # fmt: skip

    def skipped(self, step: int, scale: float) -> None:
        self._tell(step, {"training/scale_skipped": scale})

    def evaluated(self, step: int, found: Mapping[str, float], *, best: bool) -> None:
        del best
        self._tell(step, {f"evaluation/{name}": value for name, value in found.items()})
        self._writer.flush()

    def ended(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _tell(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, number in numbers.items():
            self._writer.add_scalar(name, number, step)
