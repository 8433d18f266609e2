"""The folder of a run: one training at a time writes there, and goes on from where one stands."""
# ruff: noqa: RUF009 - `keyword` makes a field

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx_ir as ir

from gradtool.errors import SystemErrors, UsageError
from gradtool.io import contained
from gradtool.io.documents import is_text, read_document, write_document
from gradtool.ranks.group import ALONE, Group
from gradtool.training import checkpoints, loggers, resuming
from gradtool.training import journal as journals
from gradtool.training.callbacks import Watcher, callback
from gradtool.training.checkpoints import Checkpoint, Folder, Records, remove
from gradtool.training.evaluating import require_parts
from gradtool.training.journal import Journal
from gradtool.training.options import TrainOptions
from gradtool.training.setup import Setup
from gradtool.training.sources import Given
from gradtool.training.timeline import Timeline
from gradtool.workloads import plan_files
from gradtool.workloads.options import keyword
from gradtool.workloads.strategies import keep

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
CLASSES = "classes.json"  # the names of classes by input
PLAN = "plan.json"  # what was chosen for a memory, beside the checkpoints


Rehearse = Callable[[ir.Model, bool], object]


@dataclass(frozen=True)
class Begun:
    """The checkpoint and the folder of a training: each None where there is no such thing."""

    folder: Folder | None = None
    found: Checkpoint | None = None
    records: Records | None = None


@contextmanager
def held(path: str | os.PathLike[str] | None) -> Iterator[None]:
    """Lock a folder against other trainings, made if there is none.

    The lock ends with the process that has it.  Not every file system has such.

    Raises:
        UsageError: another training writes there, or the folder cannot be written.
    """
    if path is None:
        yield
        return
    folder = Path(path)
    is_new = not folder.exists()
    with SystemErrors(folder, "cannot be written"):
        folder.mkdir(parents=True, exist_ok=True)
        file = _locked(folder)
    try:
        yield
    finally:
        with suppress(OSError):
            (folder / LOCK).unlink()
        file.close()
        if is_new:
            with suppress(OSError):
                folder.rmdir()  # unless something was written


def _locked(folder: Path) -> BinaryIO:
    """The file of the lock, open and locked; who held it before may have removed it meanwhile."""
    while True:
        file = contained.appended(folder / LOCK)
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise UsageError(
                f"{folder}: another training writes there: wait for its end, or name another folder"
            ) from error
        except OSError:  # a file system without locks
            return file
        with suppress(OSError):
            if os.path.samestat(os.fstat(file.fileno()), os.lstat(folder / LOCK)):
                return file
        file.close()


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """The options of `Trainer.fit`, whose docstring describes each."""

    evaluate: Given | None = keyword(
        None, "data of evaluations, in the same forms; none by default."
    )
    names: Mapping[str, str] | None = keyword(
        None, "by input, its name in the data, where that differs."
    )
    run: str | os.PathLike[str] | None = keyword(
        None, "a folder for checkpoints and the journal, of one training at a time."
    )
    resume: bool = keyword(False, "go on from the newest checkpoint of `run`.")
    export: bool = keyword(
        False, "with `resume`: take no step, for `save` to write the weights of the checkpoint."
    )
    fresh: bool = keyword(False, "remove a training that `run` holds.")
    watcher: Watcher | None = keyword(None, "hears of each step, evaluation and checkpoint.")
    group: Group = keyword(
        ALONE, "the ranks that train together, each on its share of a batch; the first writes."
    )
    timeline: Timeline | None = keyword(None, "keeps the spans of the latest steps.")
    rehearse: Rehearse | None = keyword(
        None, "is given the training graph, and whether no step is left, before any begins."
    )


def completed(options: TrainOptions, fit: FitOptions) -> TrainOptions:
    """Options of a training that goes on: what nobody names is as in its newest checkpoint.

    Raises:
        UsageError: that is damaged, or there is none to export.
    """
    of: Any = None
    if fit.export and not fit.resume:
        raise UsageError("to export takes resume")
    if fit.resume and fit.run is not None:
        if fit.group.rank == 0:
            found = checkpoints.newest(Path(fit.run))
            of = None if found is None else found["of"]
        of = json.loads(fit.group.gather_bytes(json.dumps(of).encode())[0])
    if of is None and fit.export:
        raise UsageError(f"{fit.run}: no checkpoint yet: there are no weights to export")
    return options if of is None else resuming.completed(options, of)


def classes_of(folder: Path) -> dict[str, list[str]]:
    """The names of classes by input that a run noted; none where it has none.

    Raises:
        UsageError: they are damaged.
    """
    path = folder / CLASSES
    if not os.path.lexists(path):
        return {}
    found = read_document(path, own=True)
    lists = list(found.values())
    if not all(isinstance(each, list) and all(map(is_text, each)) for each in lists):
        raise UsageError(f"{path}: is damaged: it has no names of classes")
    return found


def watchers(options: TrainOptions, fit: FitOptions) -> list[Watcher]:
    """Who hears of a training: on the first rank packages and code that options name, too.

    Raises:
        UsageError: there is no such package or code.
    """
    told = fit.watcher or Watcher()
    if fit.group.rank:
        return [told]
    return [*map(loggers.logger, options.log), *map(callback, options.callback), told]


def begun(setup: Setup, watcher: Watcher, options: FitOptions) -> Begun:
    """Find where a training goes on, or make room for it; nothing is written before all is found.

    Raises:
        UsageError: the folder holds another training, or a damaged one, or one that is neither
            gone on with nor made anew.
    """
    path, group, resume = options.run, options.group, options.resume
    if path is None and resume:
        raise UsageError("to resume takes the folder of a run")
    folder = None if path is None else Folder(Path(path), setup.described())
    first, found, records = group.rank == 0, None, None
    if first and folder is not None and resume:
        found = _newest(folder, watcher)
    if first and options.rehearse is not None:
        limits = setup.steps, setup.epochs, setup.options.patience
        is_done = found is not None and found.progress.is_done(*limits)
        options.rehearse(setup.graphs.training.model, is_done)
    require_parts(setup)
    if first and folder is not None and not resume:
        _clear(folder, fresh=options.fresh)
    if setup.fit is not None:
        watcher.fitted(setup.fit)
        if first and folder is not None:
            chosen = setup.fit.chosen
            plan = chosen.planned or keep(chosen.work)
            plan_files.save(chosen.work, plan, folder.path / PLAN, force=True, own=True)
    if first and folder is not None and setup.data[0].classes:
        write_document(setup.data[0].classes, folder.path / CLASSES, force=True, own=True)
    if first and folder is not None:
        records = Records(folder, _journal(folder, found, watcher))
    step = int(group.gather(np.array(-1 if found is None else found.progress.step))[0])
    if not first and folder is not None and step >= 0:
        found = folder.load(step)
    return Begun(folder, found, records)


def _newest(folder: Folder, watcher: Watcher) -> Checkpoint | None:
    """The newest checkpoint, to go on from; None where there is none yet."""
    steps = folder.steps()
    if steps:
        found = folder.load(steps[-1])
        watcher.said(f"going on from step {found.progress.step}: {found.path}")
        changed = resuming.changes(found.of, folder.of)
        if changed:
            watcher.said(f"from here on: {changed}")
        return found
    path = folder.path / journals.NAME
    if journals.has_entries(path):
        for entry in journals.read(path):
            if "step" not in entry:
                raise UsageError(f"{path}: is no journal of a training: move it away")
    watcher.said(f"{folder.path}: no checkpoint yet: from the beginning")
    return None


def _journal(folder: Folder, found: Checkpoint | None, watcher: Watcher) -> Journal:
    """The journal that is added to: where it is gone, work goes on without what it said."""
    path, mark = folder.path / journals.NAME, None if found is None else found.journal
    if mark is not None and mark.bytes and not os.path.lexists(path):
        watcher.said(f"warning: {path}: is gone: a new one begins with the next step")
        mark = None
    return Journal(path, mark)


def _clear(folder: Folder, *, fresh: bool) -> None:
    """Make room for a new training: one that is there goes only if the new one shall be `fresh`."""
    path = folder.path / journals.NAME
    if fresh:
        folder.clear()
        remove(path)
    if folder.steps() or journals.has_entries(path):
        raise UsageError(
            f"{folder.path}: holds a training: go on with it by resume, or name another"
        )
    remove(folder.path / loggers.IDS)
