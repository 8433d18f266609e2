"""From a model and data to trained weights.

with gt.Trainer("model.onnx", optimizer="adamw", lr=3e-4, epochs=3) as trainer:
    history = trainer.fit("train.npz", evaluate="test.npz", run="runs/first")
    trainer.save("model.trained.onnx")
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any, Self

import numpy as np

from gradtool import api
from gradtool.arguments import checked, hold, takes
from gradtool.errors import GradtoolError, UsageError
from gradtool.exec.closing import Closing
from gradtool.ops.ranks.members import together
from gradtool.ranks.group import Group
from gradtool.session import Session
from gradtool.text.words import suggest
from gradtool.training import runs, stopping
from gradtool.training.callbacks import Watcher, Watchers
from gradtool.training.checkpoints import Checkpoint, Folder, Records
from gradtool.training.evaluating import counter_for, evaluator_for, require_parts
from gradtool.training.graphs import Recipe, require_forward
from gradtool.training.history import History, tables_of
from gradtool.training.loop import Loop
from gradtool.training.open_rank import begun_of, open_rank
from gradtool.training.options import TrainOptions
from gradtool.training.rate_sweep import STEPS, RateSweep, Sweeping, rising
from gradtool.training.setup import Asked, Setup
from gradtool.training.sizing import opened_for
from gradtool.training.sources import Given
from gradtool.training.staged import StagedLoop
from gradtool.training.stages import require_ranks
from gradtool.training.timeline import Timeline, Traced
from gradtool.training.trained import Trained
from gradtool.training.unfreezing import begin_phase, later, prepared_in_phases, resumed
from gradtool.workloads.grad_options import GradOptions
from gradtool.workloads.options import documented
from gradtool.workloads.rewritten import Graph, model_of

Array = np.ndarray[Any, Any]


# Options of `gradtool.grad` that training chooses itself.
_OWN_CHOICE = {
    "own", "unfrozen", "grad_buffers", "loss_seed", "lora_seed", "on_loss", "on_node", "documents",
}  # fmt: skip


class Trainer(Trained, Closing):
    """Trains a forward model on data.

    Example:
        with gt.Trainer("samples/cnn.onnx", optimizer="adamw", lr=3e-4, steps=2) as trainer:
            trainer.fit("samples/cnn.npz")
            trainer.save("cnn.adamw.onnx")
    """

    @checked
    def __init__(self, model: Graph | str | os.PathLike[str], **options: Any) -> None:
        """Take a model and options.

        Args:
            model: a forward model, or the path of one.
            options: fields of `gradtool.training.options.TrainOptions`, and arguments of
                `gradtool.grad` but those that training chooses itself.

        Raises:
            UsageError: there is no such option, or some cannot be combined; the model holds its
                gradients already.
        """
        own = {each.name for each in fields(TrainOptions)}
        known = {*own, *(each.name for each in fields(GradOptions))} - _OWN_CHOICE
        unknown = next((name for name in options if name not in known), None)
        if unknown is not None:
            raise UsageError(f"Trainer takes no {unknown!r}{suggest(unknown, known)}")
        loaded = api.load(model) if isinstance(model, str | os.PathLike) else model_of(model)
        require_forward(loaded)
        chosen = TrainOptions.of({name: options[name] for name in options if name in own})
        rest = {n: v for n, v in options.items() if n not in own}
        hold("Trainer", rest, GradOptions)
        wanted = GradOptions(**rest, optimizer=chosen.optimizer, lora_seed=chosen.seed)
        loaded, said = opened_for(loaded, chosen)
        self._set(Recipe(partial(api.differentiated, loaded), wanted, said), chosen)

    @classmethod
    def of(cls, recipe: Recipe, options: TrainOptions) -> Self:
        """A trainer of the model that a recipe makes training graphs of.

        Args:
            recipe: makes them.
            options: how to train.

        Raises:
            UsageError: some options cannot be combined.
        """
        made = cls.__new__(cls)
        made._set(recipe, options)  # noqa: SLF001 - it is one of this class
        return made

    def _set(self, recipe: Recipe, options: TrainOptions) -> None:
        options.require()
        wanted = replace(recipe.options, documents=options.pack)
        self._recipe, self._options = replace(recipe, options=wanted), options
        self._session: Session | None = None
        self._folder: Folder | None = None
        self._loop: Loop | None = None
        self._means: Mapping[str, np.ndarray[Any, Any]] = {}
        self._notes: Mapping[str, str] = {}

    # --------------------------------------------------------------------- fitting

    @takes(runs.FitOptions, documented(runs.FitOptions))
    def fit(self, data: Given, options: runs.FitOptions) -> History:  # noqa: D417 - by `takes`
        """Train on data, from the weights of the model or from the newest checkpoint of `run`.

        A signal that asks for the end (Ctrl-C, SIGTERM, SIGHUP) is heard after the step that runs,
        and once a checkpoint is written does what it would have done.

        Args:
            data: a path, `module:function`, arrays by name that hold all examples, a data set with
                a length, or an iterable, or a function that returns one, of batches (docs/data.md).

        Returns:
            The losses and evaluations, and why the training ended.

        Raises:
            UsageError: data do not fit the model, a file cannot be read or written, `run` holds
                another training, or one and `resume` is not asked for.
            GradtoolError: the loss is no number any more.
        """
        self.close()
        group, timeline = options.group, options.timeline
        writes = options.run if group.rank == 0 else None
        with stopping.listening() as asked, runs.held(writes):
            watcher = Watchers(*runs.watchers(self._options, options), asked)
            setup = self._prepared(data, watcher, options)
            begun = runs.begun(setup, watcher, options)
            if options.export and begun.found is not None:
                setup = replace(setup, steps=begun.found.progress.step)
            self._folder = begun.folder
            if timeline is not None:
                group = Traced(group, timeline)
            try:
                history = self._run(setup, begun.found, begun.records, watcher, group, timeline)
            finally:
                if begun.records is not None:
                    begun.records.journal.close()
                watcher.ended()
        asked.pass_on()
        return replace(history, ended="interrupted") if options.export else history

    def find_lr(
        self,
        data: Given,
        *,
        names: Mapping[str, str] | None = None,
        watcher: Watcher | None = None,
    ) -> RateSweep:
        """Try learning rates: steps whose rate rises by equal factors, until the loss diverges.

        The weights are as before afterwards, and nothing is written.  There are `steps` steps, 100
        where the options name none.

        Args:
            data: as of `fit`.
            names: by input, its name in the data, where that differs.
            watcher: hears of the steps, and may stop them.

        Returns:
            Rates and losses, and the rates that they suggest.

        Raises:
            UsageError: data do not fit the model.
            GradtoolError: no loss is a number.
        """
        self.close()
        told, steps = Sweeping(), self._options.steps or STEPS
        before, self._folder = self._options, None
        with stopping.listening() as asked:
            watchers = Watchers(told, watcher or Watcher(), asked)
            fit = runs.FitOptions(names=names)
            self._options = replace(before, steps=steps, epochs=None, schedule=None, ema=None)
            try:
                setup = replace(self._prepared(data, watchers, fit), schedule=rising(steps))
                require_parts(setup)
                ended = self._run(setup, None, None, watchers, fit.group, None).ended
            except GradtoolError as error:
                if type(error) is not GradtoolError or not told.losses:
                    raise
                ended = "interrupted"  # by a loss that is no number
            finally:
                self._options = before
                watchers.ended()
                self.close()
        asked.pass_on()
        return told.found(diverged=ended == "interrupted")

    def _prepared(self, data: Given, watcher: Watcher, fit: runs.FitOptions) -> Setup:
        options, ranks = runs.completed(self._options, fit), fit.group.size
        require_ranks(ranks, options.stages, options.shard, sync_batchnorm=options.sync_batchnorm)
        asked = Asked(
            self._recipe, options, data, fit.evaluate, fit.names or {}, watcher,
            ranks // options.stages,
        )  # fmt: skip
        return prepared_in_phases(asked)

    def _run(
        self,
        setup: Setup,
        found: Checkpoint | None,
        records: Records | None,
        watcher: Watcher,
        group: Group,
        timeline: Timeline | None,
    ) -> History:
        opened = open_rank(resumed(setup, found), found, group, watcher, self._folder)
        whole, setup, session, place = setup, opened.setup, opened.session, opened.place
        self._session, self._notes = session, setup.data[0].notes
        made = Loop if place is None else partial(StagedLoop, place=place)
        self._loop = loop = made(
            session=session,
            setup=setup,
            watcher=watcher,
            evaluator=evaluator_for(setup, session, group, place),
            records=records,
            recorded=self._folder is not None,
            progress=opened.progress,
            counter=counter_for(setup, 0) if setup.graphs.update is not None else None,
            group=place.replicas if place else group,
            shard=opened.shard,
            server=opened.server,
            timeline=timeline,
            later=later(whole, setup.graphs),
            begins_phase=partial(self._begin_phase, whole, group, watcher)
            if whole.phases
            else None,
        )
        watcher.begun(begun_of(setup, opened.progress, self._folder))
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
            best_ema=loop.progress.best_ema,
            tables=tables_of(loop.progress, self._folder),
        )

    def _begin_phase(self, setup: Setup, group: Group, watcher: Watcher, loop: Loop) -> None:
        self._session = begin_phase(setup, loop, group, watcher, self._folder)

    def close(self) -> None:
        """Let go of the memory that the steps took."""
        if self._session is not None:
            self._session.close()
        self._session = self._loop = None
        self._means = {}
