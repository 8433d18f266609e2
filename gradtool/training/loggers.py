"""Watchers that tell a package of a training: TensorBoard, Weights & Biases, MLflow.

Each takes the same numbers by the same names.  What cannot begin ends the training before its first
step; what fails later ends the logging alone.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

from gradtool.errors import GradtoolError, GradtoolWarning, UsageError
from gradtool.io.contained import made
from gradtool.io.documents import read_document, write_document
from gradtool.text.extras import install
from gradtool.text.words import suggest
from gradtool.training.callbacks import Begun, Watcher

IDS = "log.json"  # in the folder of a run: the run of each package, to go on with
_VERSION = 1
_MOST = 400  # numbers that wait, and
_LONGEST = 2.0  # seconds that they do


class Logger(Watcher):
    """Tells a package, of the name `extra`, of losses, rates, evaluations and skipped steps."""

    extra: ClassVar[str]
    module: ClassVar[str]

    def __init__(self, where: str | os.PathLike[str] | None = None) -> None:
        """Log to a place of the package's own kind, its default without one.

        Raises:
            UsageError: the extra is missing.
        """
        try:
            self._package: Any = import_module(self.module)
        except ImportError as error:
            raise UsageError(f"--log {self.extra} needs: {install(self.extra)}") from error
        self._where = None if where is None else os.fspath(where)
        self._is_open = False

    def begun(self, begun: Begun) -> None:
        self.ended()
        try:
            self._open(begun)
        except GradtoolError:
            raise
        except (Exception, SystemExit) as error:
            raise UsageError(f"--log {self.extra}: {_reason(error)}") from error
        self._is_open = True

    def stepped(self, step: int, epoch: int, loss: float, rate: float, planned: int) -> None:
        self._tell(step, {
            "training/loss": loss, "training/lr": rate, "training/epoch": epoch,
            "training/planned_bytes": planned,
        })  # fmt: skip

    def skipped(self, step: int, scale: float) -> None:
        self._tell(step, {"training/scale_skipped": scale})

    def evaluated(self, step: int, found: Mapping[str, float], *, best: bool) -> None:
        del best
        self._tell(step, {f"evaluation/{name}": value for name, value in found.items()}, now=True)

    def ended(self) -> None:
        if self._is_open:
            self._guarded(self._close)
        self._is_open = False

    def _tell(self, step: int, numbers: Mapping[str, float], *, now: bool = False) -> None:
        if self._is_open:
            self._guarded(self._write, step, numbers, now)

    def _guarded(self, call: Any, *given: Any) -> None:
        try:
            call(*given)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a training is worth more
            self._is_open = False
            told = f"--log {self.extra}: {_reason(error)}: nothing more is logged there"
            warnings.warn(told, GradtoolWarning, stacklevel=2)

    @abstractmethod
    def _open(self, begun: Begun) -> None:
        """Begin, or go on where the training does."""

    @abstractmethod
    def _write(self, step: int, numbers: Mapping[str, float], now: bool) -> None:  # noqa: FBT001
        """Take numbers of a step, which people should see `now` or soon."""

    @abstractmethod
    def _close(self) -> None:
        """End."""

    def _known(self, begun: Begun) -> str | None:
        """The package's run that a training goes on with."""
        if begun.run is None or not begun.first or not os.path.lexists(begun.run / IDS):
            return None
        found = read_document(begun.run / IDS, _VERSION, own=True).get(self.extra)
        return found if isinstance(found, str) and found.isalnum() else None

    def _remember(self, begun: Begun, name: str) -> None:
        if begun.run is None:
            return
        path = begun.run / IDS
        held = read_document(path, _VERSION, own=True) if os.path.lexists(path) else {}
        write_document({**held, "schema_version": _VERSION, self.extra: name}, path, force=True,
                       own=True)  # fmt: skip


class TensorBoard(Logger):
    """Writes events into a folder, by default `events` in that of the run.

    A training that goes on from a checkpoint takes back what was told of the steps after it.
    Events have times in them: no two files are the same.
    """

    extra, module = "tensorboard", "tensorboardX"

    def _open(self, begun: Begun) -> None:
        try:
            folder = self._where or self._own(begun)
            self._writer = self._package.SummaryWriter(
                folder, purge_step=begun.first + 1, filename_suffix=f".{begun.first}"
            )
        except OSError as error:
            raise UsageError(f"{self._where or begun.run}: {error.strerror or error}") from error
        told = "  \n".join(f"{name}: {value}" for name, value in begun.options.items())
        self._writer.add_text("options", told, begun.first)

    @staticmethod
    def _own(begun: Begun) -> str:
        """The folder of events in that of the run, through no link."""
        if begun.run is None:
            raise UsageError("--log tensorboard: name a folder, as in tensorboard:DIR")
        return os.fspath(made(begun.run / "events"))

    def _write(self, step: int, numbers: Mapping[str, float], now: bool) -> None:  # noqa: FBT001
        for name, number in numbers.items():
            self._writer.add_scalar(name, number, step)
        if now:
            self._writer.flush()

    def _close(self) -> None:
        self._writer.close()


class Wandb(Logger):
    """Tells Weights & Biases, in a project; `WANDB_MODE=offline` writes to the disk alone."""

    extra, module = "wandb", "wandb"

    def _open(self, begun: Begun) -> None:
        known = self._known(begun)
        options = dict(begun.options)
        self._run = self._package.init(
            project=self._where, id=known, resume="allow" if known else None, config=options,
            name=None if begun.run is None else begun.run.name,
            settings=self._package.Settings(console="off"),
        )  # fmt: skip
        self._run.config.update(options, allow_val_change=True)
        self._remember(begun, self._run.id)

    def _write(self, step: int, numbers: Mapping[str, float], now: bool) -> None:  # noqa: FBT001
        del now
        self._run.log(dict(numbers), step=step)

    def _close(self) -> None:
        self._run.finish()


class Mlflow(Logger):
    """Tells MLflow, in an experiment; `MLFLOW_TRACKING_URI` says where it runs."""

    extra, module = "mlflow", "mlflow"

    def _open(self, begun: Begun) -> None:
        self._client = self._package.MlflowClient()
        self._waiting: list[Any] = []
        self._told = time.monotonic()
        known = self._known(begun)
        if known is None:
            label = None if begun.run is None else begun.run.name
            made = self._client.create_run(self._experiment(), run_name=label)
            self._id = made.info.run_id
        else:
            self._id = known
            self._client.update_run(known, status="RUNNING")
        held = self._client.get_run(self._id).data.params
        for name, value in begun.options.items():
            if name not in held:
                self._client.log_param(self._id, name, value)
            elif held[name] != str(value):  # what is logged stays
                self._client.set_tag(self._id, f"{name} from step {begun.first}", value)
        self._remember(begun, self._id)

    def _experiment(self) -> str:
        name = self._where or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "Default"
        found = self._client.get_experiment_by_name(name)
        return str(self._client.create_experiment(name) if found is None else found.experiment_id)

    def _write(self, step: int, numbers: Mapping[str, float], now: bool) -> None:  # noqa: FBT001
        at = int(time.time() * 1000)
        metric = self._package.entities.Metric
        self._waiting += [
            metric(name, float(number), at, step)
            for name, number in numbers.items()
            if math.isfinite(number)
        ]
        if now or len(self._waiting) >= _MOST or time.monotonic() - self._told > _LONGEST:
            self._flush()

    def _flush(self) -> None:
        self._client.log_batch(self._id, metrics=self._waiting)
        self._waiting, self._told = [], time.monotonic()

    def _close(self) -> None:
        self._flush()
        self._client.set_terminated(self._id)


LOGGERS: Mapping[str, type[Logger]] = {each.extra: each for each in (TensorBoard, Wandb, Mlflow)}


def logger(text: str) -> Logger:
    """The logger named by `NAME` or `NAME:WHERE`.

    Raises:
        UsageError: there is no such logger, its extra is missing, or the place is empty.
    """
    name, colon, where = text.partition(":")
    if name not in LOGGERS:
        hint = suggest(name, LOGGERS) or f"; there are {', '.join(LOGGERS)}"
        raise UsageError(f"--log: no logger {name!r}{hint}")
    if colon and not where:
        raise UsageError(f"--log {text}: nothing follows the colon")
    return LOGGERS[name](where or None)


def _reason(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
