"""From a model and data to trained weights.

with gt.Trainer("model.onnx", optimizer="adamw", lr=3e-4, epochs=3) as trainer:
    history = trainer.fit("train.npz", evaluate="test.npz", run="runs/first")
    trainer.save("model.trained.onnx")
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from inspect import signature
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import onnx_ir as ir

from gradtool import api
from gradtool.arguments import checked, hold
from gradtool.errors import UsageError
from gradtool.kernels.ranks import together
from gradtool.passes.update_groups import Updates
from gradtool.ranks.group import ALONE, Group
from gradtool.session import Session
from gradtool.text.words import suggest
from gradtool.training import journal as journals
from gradtool.training.checkpoints import Best, Checkpoint, Folder, Progress, remove
from gradtool.training.evaluating import counter_for, evaluator_for, require_parts
from gradtool.training.fit import Fit
from gradtool.training.graphs import Recipe, require_forward
from gradtool.training.loop import End, Loop, Records
from gradtool.training.opening import open_rank
from gradtool.training.options import TrainOptions
from gradtool.training.setup import Setup, prepared
from gradtool.training.sizing import opened_for
from gradtool.training.sources import Given
from gradtool.training.staged import StagedLoop
from gradtool.training.stages import require_ranks
from gradtool.training.timeline import Timeline, Traced
from gradtool.training.watching import Begun, Watcher
from gradtool.workloads import plan_files
from gradtool.workloads.rewriting import Graph, model_of
from gradtool.workloads.strategies import keep

Array = np.ndarray[Any, Any]
PLAN = "plan.json"  # what was chosen for a memory, beside the checkpoints


@dataclass(frozen=True)
class History:
    """What a training came to.

    `losses` are those of the steps that were taken now, `evaluations` pairs of a step and its
    numbers; `ended` says why it did: `steps`, `patience` or `interrupted`; `fit` is how a memory
    was kept to, where one was.
    """

    step: int
    losses: tuple[float, ...]
    evaluations: tuple[tuple[int, dict[str, float]], ...]
    best: Best | None
    skipped: int
    ended: End
    fit: Fit | None = None

    def __repr__(self) -> str:
        last = f", loss {self.losses[-1]:.4g}" if self.losses else ""
        return f"History({self.step} steps{last}, {len(self.evaluations)} evaluations)"

    def _repr_html_(self) -> str:
        from gradtool.text.table import facts

        found = {
            "steps": self.step, "last loss": f"{self.losses[-1]:.6g}" if self.losses else None,
            "evaluations": len(self.evaluations), "skipped": self.skipped, "ended": self.ended,
        }  # fmt: skip
        if self.evaluations:
            step, last = self.evaluations[-1]
            found |= {f"{name} at {step}": f"{value:.6g}" for name, value in last.items()}
        return facts("training", found)


Rehearse = Callable[[ir.Model], object]

# Options of `gradtool.grad` that training chooses itself.
_OWN_CHOICE = {"model", "own", "grad_buffers", "loss_seed", "lora_seed", "on_loss", "on_node"}


class Trainer:
    """Trains a forward model; options are those of `TrainOptions` and of `gradtool.grad`."""

    @checked
    def __init__(self, model: Graph | str | os.PathLike[str], **options: Any) -> None:
        """Take a model, or the path of one.

        Raises:
            UsageError: there is no such option, or some do not go together; the model holds its
                gradients already.
        """
        own = {each.name for each in fields(TrainOptions)}
        known = {*own, *signature(api.grad).parameters} - _OWN_CHOICE
        unknown = next((name for name in options if name not in known), None)
        if unknown is not None:
            raise UsageError(f"Trainer takes no {unknown!r}{suggest(unknown, known)}")
        loaded = api.load(model) if isinstance(model, str | os.PathLike) else model_of(model)
        require_forward(loaded)
        chosen = TrainOptions.of({name: options[name] for name in options if name in own})
        hold("Trainer", {n: v for n, v in options.items() if n not in own}, api.grad)
        updates = Updates.of(options | {"optimizer": chosen.optimizer})
        rest = {n: v for n, v in options.items() if n not in own and n not in updates.options}
        loaded, said = opened_for(loaded, chosen)
        differentiate = partial(api.grad, loaded, lora_seed=chosen.seed, **rest)
        self._set(Recipe(differentiate, updates, said), chosen)

    @classmethod
    def of(cls, recipe: Recipe, options: TrainOptions) -> Self:
        """A trainer of what a recipe makes training graphs of."""
        made = cls.__new__(cls)
        made._set(recipe, options)  # noqa: SLF001 - it is one of this class
        return made

    def _set(self, recipe: Recipe, options: TrainOptions) -> None:
        options.require()
        self._recipe, self._options = recipe, options
        self._session: Session | None = None
        self._folder: Folder | None = None
        self._loop: Loop | None = None
        self._means: Mapping[str, np.ndarray[Any, Any]] = {}

    # --------------------------------------------------------------------- fitting

    @checked
    def fit(
        self,
        data: Given,
        *,
        evaluate: Given | None = None,
        names: Mapping[str, str] | None = None,
        run: str | os.PathLike[str] | None = None,
        resume: bool = False,
        fresh: bool = False,
        watcher: Watcher | None = None,
        group: Group = ALONE,
        timeline: Timeline | None = None,
        rehearse: Rehearse | None = None,
    ) -> History:
        """Train on data, from the weights of the model or from the newest checkpoint of `run`.

        Data are a path, `module:function`, arrays by name, or a function that yields batches (see
        `gradtool.training.sources`); `names` has what the data call an input, where that differs.
        `run` is a folder for checkpoints and the journal; what it holds is removed if the training
        shall be a `fresh` one.  The ranks of a `group` do it together: each computes its share of
        every batch, and the first one writes.  A `timeline` notes what is done when.  `rehearse` is
        given the training graph before anything is begun, to find out whether results can be
        written (see `gradtool.training.rehearsal`).

        Raises:
            UsageError: data do not fit the model, a file cannot be read or written, `run` holds
                another training, or one and `resume` is not asked for.
            GradtoolError: the loss is no number any more.
        """
        self.close()
        watcher = watcher or Watcher()
        options, stages = self._options, self._options.stages
        require_ranks(group.size, stages, options.shard, sync_batchnorm=options.sync_batchnorm)
        setup = prepared(
            self._recipe, options, data, evaluate, names or {}, watcher,
            group.size // stages,
        )  # fmt: skip
        if rehearse is not None and group.rank == 0:
            rehearse(setup.graphs.training.model)
        require_parts(setup)
        find = partial(_found, run, setup, watcher, resume=resume, fresh=fresh)
        if timeline is not None:
            group = Traced(group, timeline)
        self._folder, found = find() if group.rank == 0 else (_folder(run, setup), None)
        found = _shared(group, self._folder, found)
        if setup.fit is not None:
            watcher.fitted(setup.fit)
            if self._folder is not None:
                chosen = setup.fit.chosen
                path = self._folder.path / PLAN
                plan_files.save(
                    chosen.work, chosen.planned or keep(chosen.work), path, force=True, own=True
                )
        records = None
        if self._folder is not None and group.rank == 0:
            path, size = self._folder.path / journals.NAME, found.journal if found else 0
            records = Records(self._folder, journals.Journal(path, size))
        try:
            return self._run(setup, found, records, watcher, group, timeline)
        finally:
            watcher.ended()
            if records is not None:
                records.journal.close()

    def _run(
        self,
        setup: Setup,
        found: Checkpoint | None,
        records: Records | None,
        watcher: Watcher,
        group: Group,
        timeline: Timeline | None,
    ) -> History:
        opened = open_rank(setup, found, group, watcher, self._folder)
        setup, session, place = opened.setup, opened.session, opened.place
        self._session = session
        made = Loop if place is None else partial(StagedLoop, place=place)
        self._loop = loop = made(
            session=session,
            graphs=setup.graphs,
            data=setup.data[0],
            order=setup.order,
            schedule=setup.schedule,
            options=setup.options,
            steps=setup.steps,
            epochs=setup.epochs,
            watcher=watcher,
            metrics=setup.metrics,
            evaluator=evaluator_for(setup, session, group, place),
            records=records,
            recorded=self._folder is not None,
            progress=opened.progress,
            counter=counter_for(setup, 0) if setup.graphs.update is not None else None,
            group=place.replicas if place else group,
            shard=opened.shard,
            server=opened.server,
            timeline=timeline,
        )
        watcher.begun(_begun(setup, opened.progress))
        with together(group):
            if loop.evaluator is not None:
                loop.evaluator.rehearse()
            ended = loop.run()
        loop.save()
        averages = setup.options.ema is not None
        if opened.server or place or (opened.shard is not None and averages):
            self._means = loop.kept()
        if opened.server is not None:
            opened.server.close()
        return History(
            step=loop.progress.step,
            losses=tuple(loop.losses),
            evaluations=tuple(loop.evaluations),
            best=loop.progress.best,
            skipped=loop.progress.skipped,
            ended=ended,
            fit=setup.fit,
        )

    # ------------------------------------------------------------------- afterwards

    @property
    def session(self) -> Session:
        """The session that the steps ran in.

        Raises:
            UsageError: nothing was fitted yet, or the trainer is closed.
        """
        if self._session is None:
            raise UsageError("nothing is trained yet: call fit")
        return self._session

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        best: bool = False,
        averages: bool = False,
        force: bool = False,
    ) -> tuple[Path, int]:
        """Write the model with the weights of the last step, or of the best; path and bytes.

        Everything else is as in its file; see `gradtool.Session.save`.  With `averages`, the
        exponential means are written.

        Raises:
            UsageError: nothing is trained, the best weights are not kept, or the output exists.
        """
        session = self.session
        return session.save(path, averages=averages, values=self._values(best=best), force=force)

    def weights(self, *, best: bool = False, averages: bool = False) -> dict[str, Array]:
        """What `save` would write, by name: parameters, running statistics and adapters.

        Raises:
            UsageError: nothing is trained, or the best weights are not kept.
        """
        return self.session.weights(self._values(best=best), averages=averages)

    @property
    def lost(self) -> int | None:
        """The step whose weights are in no checkpoint; None where there is none such."""
        loop = self._loop
        if loop is None or loop.progress.step == loop.begun or loop.is_saved:
            return None
        return loop.progress.step

    def save_adapter(
        self, path: str | os.PathLike[str], *, best: bool = False, force: bool = False
    ) -> list[tuple[Path, int]]:
        """Write the adapters for themselves; see `gradtool.Session.save_adapter`.

        Raises:
            UsageError: there are none, nothing is trained, the best weights are not kept, or an
                output exists.
        """
        return self.session.save_adapter(path, values=self._values(best=best), force=force)

    def _values(self, *, best: bool) -> Mapping[str, np.ndarray[Any, Any]]:
        if best:
            return self._best().arrays
        return {**self.session.values(copy=False), **self._means}

    def _best(self) -> Checkpoint:
        found = self._loop.progress.best if self._loop is not None else None
        if found is None or self._folder is None:
            raise UsageError("the best weights are kept by a fit with evaluate and run")
        return self._folder.load(found.step)

    def close(self) -> None:
        """Let go of the memory that the steps took."""
        if self._session is not None:
            self._session.close()
        self._session = self._loop = None
        self._means = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _found(
    run: str | os.PathLike[str] | None,
    setup: Setup,
    watcher: Watcher,
    *,
    resume: bool,
    fresh: bool,
) -> tuple[Folder | None, Checkpoint | None]:
    """The folder of a training, and its newest checkpoint where that is gone on with."""
    if run is None:
        if resume:
            raise UsageError("to resume takes the folder of a run")
        return None, None
    path = Path(run)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path}: cannot be made: {error.strerror or error}") from error
    folder = Folder(path, setup.described())
    if fresh and not resume:
        folder.clear()
        remove(path / journals.NAME)
    steps = folder.steps()
    if not resume and (steps or journals.has_entries(path / journals.NAME)):
        raise UsageError(f"{path}: holds a training: go on with it by resume, or name another")
    if not resume:
        return folder, None
    if not steps:
        watcher.said(f"{path}: no checkpoint yet: from the beginning")
        return folder, None
    found = folder.load(steps[-1])
    watcher.said(f"going on from step {found.progress.step}: {found.path}")
    return folder, found


def _folder(run: str | os.PathLike[str] | None, setup: Setup) -> Folder | None:
    return None if run is None else Folder(Path(run), setup.described())


def _shared(group: Group, folder: Folder | None, found: Checkpoint | None) -> Checkpoint | None:
    """The checkpoint that the first rank has found, on every rank."""
    step = int(group.gather(np.array(-1 if found is None else found.progress.step))[0])
    if group.rank == 0 or folder is None or step < 0:
        return found
    return folder.load(step)


def _begun(setup: Setup, progress: Progress) -> Begun:
    return Begun(
        steps=setup.steps,
        first=progress.step,
        per_epoch=setup.order.batches if setup.order else None,
        batch=setup.order.size if setup.order else None,
        micro_batches=setup.options.micro_batches,
    )
