"""The loop: steps, evaluations, checkpoints, and the end."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from gradtool.errors import GradtoolError, UsageError
from gradtool.ops.shared.rng import repeatable
from gradtool.ranks.group import ALONE, Group, anywhere, total
from gradtool.session import Session
from gradtool.training import failing, scaling
from gradtool.training.batches import Batches
from gradtool.training.callbacks import Watcher
from gradtool.training.checkpoints import Records
from gradtool.training.checks import has_nan
from gradtool.training.counting import Counter
from gradtool.training.data import Arrays, BoundDataset
from gradtool.training.evaluating import of_means
from gradtool.training.evaluation import Evaluator
from gradtool.training.graphs import Graphs
from gradtool.training.metrics import deciding
from gradtool.training.options import TrainOptions
from gradtool.training.prefetch import Prefetched
from gradtool.training.progress import Progress, better
from gradtool.training.reduction import Reducer, require_same
from gradtool.training.row_tables import RowServer
from gradtool.training.sampler import Place
from gradtool.training.setup import Setup
from gradtool.training.sharding import Shard
from gradtool.training.timeline import Nodes, Timeline, spanned

End = Literal["steps", "patience", "interrupted"]
SEEDS = 1 << 32  # steps that have draws of their own
COMPARED = 100  # steps after which ranks compare what they have, at the latest


@dataclass
class Loop:
    """One training, from `progress` on.

    Where it is `recorded`, the rank that has `records` writes.
    """

    session: Session
    setup: Setup
    watcher: Watcher
    evaluator: Evaluator | None = None
    records: Records | None = None
    recorded: bool = False
    progress: Progress = field(default_factory=Progress)
    counter: Counter | None = None
    group: Group = ALONE
    shard: Shard | None = None
    server: RowServer | None = None
    timeline: Timeline | None = None
    losses: array[float] = field(default_factory=lambda: array("d"))
    evaluations: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    begun: int = 0
    later: Sequence[str] = ()  # parameters that are frozen as yet
    begins_phase: Callable[[Loop], object] | None = None  # before the epochs that begin one
    _saved: Progress | None = None

    def __post_init__(self) -> None:
        self.reduce()

    @property
    def graphs(self) -> Graphs:
        """The graphs of a step of now."""
        return self.setup.graphs

    @property
    def options(self) -> TrainOptions:
        """The options of the training."""
        return self.setup.options

    @property
    def data(self) -> BoundDataset:
        """The data that are trained on."""
        return self.setup.data[0]

    def reduce(self) -> None:
        """Reduce what the steps of the session sum over the ranks."""
        apart = set[str]()
        if self.shard is not None and self.options.shard == "gradients":
            apart |= self.graphs.sums
        if self.server is not None:
            tables = self.server.tables
            apart |= {*tables.apart, *(total for total, _ in tables.sums.values())}
        self._reducer = Reducer(self.group, self.session, self.graphs.sums, apart)

    def run(self) -> End:
        """Train to the end; returns why it is one.

        Raises:
            GradtoolError: the loss is no number any more.
            UsageError: data cannot be used, or a file cannot be written.
        """
        self._saved, self.begun = self.progress, self.progress.step
        if self.progress.due:
            self._evaluate()
        self._begin_epoch()
        if not self._is_done():
            order, lengths = self.setup.order, self.setup.lengths
            made = Batches(self.data, order, self.options.micro_batches, self.group, lengths)
            with Prefetched(made.beginning(self.progress.place)) as batches:
                for batch, is_last in batches:
                    with spanned(self.timeline, "steps", f"step {self.progress.step + 1}"):
                        self._step(batch)
                    self._move_on(is_last=is_last)
                    interrupted = anywhere(self._everyone, self.watcher.stops())
                    self._after_step(is_last=is_last, interrupted=interrupted)
                    if self._is_done():
                        break
                    if interrupted:
                        return "interrupted"
                    if is_last:
                        self._begin_epoch()
        return "patience" if self.progress.is_stale(self.options.patience) else "steps"

    def _begin_epoch(self) -> None:
        if self.begins_phase is not None and not self._is_done():
            self.begins_phase(self)

    # -------------------------------------------------------------------- stepping

    def _step(self, batch: Arrays) -> None:
        step = self.progress.step
        plateau = self.progress.plateau
        rate = self.setup.schedule(step, plateau.rate if plateau else None)
        self._everyone.at(step + 1)
        loss, finite = self._half_steps(batch, rate) if self.graphs.update is not None else (
            self._run({**batch, self.graphs.rate: rate}), True
        )  # fmt: skip
        if not math.isfinite(loss) and self.options.loss_scale is None:
            why = failing.why(self.graphs, self.data, batch, self.session.values(copy=False))
            if why is not None:
                raise GradtoolError(self._no_number(f"the loss is {loss} in", step + 1, why))
            loss = 0.0  # as that of a part without any label
        entry: dict[str, Any] = {
            "step": step + 1, "epoch": self.progress.place.epoch, "loss": loss, "lr": rate,
        }  # fmt: skip
        if self.options.loss_scale is not None:
            entry["loss_scale"] = self.progress.scale
            most = scaling.largest(self.graphs.loss_type)
            given = self.options.loss_scale
            self.progress = scaling.after(self.progress, given, most, finite=finite)
        if not finite:
            entry["skipped"] = True
            self.watcher.skipped(step + 1, entry["loss_scale"])
        if self.records is not None:
            self.records.journal.write(entry)
        self.losses.append(loss)
        planned = self.session.arena_bytes
        self.watcher.stepped(step + 1, self.progress.place.epoch, loss, rate, planned)

    def _half_steps(self, batch: Arrays, rate: float) -> tuple[float, bool]:
        """Add up the gradients of parts of a batch, then update by them if they are finite."""
        size, parts = self.data.size_of(batch), self.options.micro_batches
        if size % parts:
            raise UsageError(f"a batch of {size} has no {parts} parts of the same size")
        scale, each = self.progress.scale, size // parts
        count = parts * self.group.size if self.graphs.parts.kind == "mean" else 1
        pieces = [
            batch if parts == 1 else self.data.part(batch, start, start + each)
            for start in range(0, size, each)
        ]
        ahead = {} if self.counter is None else self.counter.of_parts(pieces, each, self.group)
        taken = (
            ({**piece, **ahead}, turn * self.group.size + self.group.rank)
            for turn, piece in enumerate(pieces)
        )
        summed = self._sum(taken, parts, scale / count)
        self._reducer.finish()
        if self.server is not None:
            self.server.meet()
        finite = self.options.loss_scale is None or not anywhere(
            self._everyone, not self.session.gradients_are_finite()
        )
        if finite:
            with spanned(self.timeline, "nodes", "update"):
                self.session.update({self.graphs.rate: rate}, scale=1 / scale)
            if self.shard is not None:
                self.shard.spread(self.group, self.session)
        else:
            self.session.forget_gradients()
        if self.server is not None:
            self.server.settle()
        return total(self._everyone, summed) / count, finite

    def _sum(self, taken: Iterable[tuple[Arrays, int]], parts: int, scale: float) -> float:
        """Add up the gradients of so many parts, which are numbered; the sum of their losses."""
        summed = 0.0
        for turn, (part, number) in enumerate(taken, 1):
            settling = self._reducer if turn == parts else None
            summed += self._run(part, number, loss_scale=scale, settling=settling)
        return summed

    @property
    def _everyone(self) -> Group:
        """All ranks; those of the group take shares of a batch."""
        return self.group

    def _run(self, batch: Mapping[str, Any], number: int = 0, **how: Any) -> float:
        """The loss of part `number` of a batch; its examples draw what they draw in the whole."""
        seed, step = self.options.seed, self.progress.step
        drawing = self.graphs.drawing(seed, step, number)
        nodes = None
        if self.timeline is not None:
            nodes = how["settling"] = Nodes(self.timeline, how.get("settling"))
        with repeatable(seed * SEEDS + step, number):
            loss = self.session.step({**batch, **drawing}, copy=False, **how).loss
        if nodes is not None:
            nodes.done(self.session.plans[0].program)
        assert loss is not None  # noqa: S101 - graphs have one
        return loss

    def _move_on(self, *, is_last: bool) -> None:
        place = self.progress.place
        following = Place(place.epoch + 1) if is_last else replace(place, batch=place.batch + 1)
        done = self.progress.step + 1
        self.progress = replace(self.progress, step=done, place=following, tables={})

    # --------------------------------------------------------------- between steps

    def _after_step(self, *, is_last: bool, interrupted: bool) -> None:
        step, options = self.progress.step, self.options
        ended = self.setup.steps is not None and step >= self.setup.steps
        ended |= self.setup.epochs is not None and self.progress.place.epoch >= self.setup.epochs
        due = is_last if options.every is None else not step % options.every
        evaluated = self.evaluator is not None and (due or ended)
        every = options.checkpoint_every
        keeps = is_last if every is None else not step % every
        saves = evaluated or keeps or ended or interrupted
        if saves or not step % COMPARED:
            require_same(self.group, self._everywhere(), step)
        if evaluated:
            self.progress = replace(self.progress, due=True)
        if saves:
            self.save()
        if evaluated:
            self._evaluate()

    def _evaluate(self) -> None:
        """Evaluate the weights of now, of which there is a checkpoint, and note in it how good."""
        assert self.evaluator is not None  # noqa: S101 - asked only with one
        with spanned(self.timeline, "nodes", "evaluate"):
            every, step = self.evaluator(), self.progress.step
            if self.options.ema is not None and self.server is None:
                every |= of_means(self.evaluator, self.session, self.shard, self.group)
        found = {name: value for name, value in every.items() if isinstance(value, float)}
        tables = {n: v.tolist() for n, v in every.items() if n not in found}
        metric, before = deciding(self.setup.metrics), self.progress
        name, judged = metric.name, partial(better, step=step, higher=metric.higher)
        best = judged(before.best, found[name])
        best_ema = judged(before.best_ema, found.get(f"ema {name}"))
        improved = best is not before.best
        stale = 0 if improved or best_ema is not before.best_ema else before.stale + 1
        self.progress = replace(
            before, best=best, best_ema=best_ema, stale=stale, due=False, tables=tables
        )
        self._watch(found[name], step)
        self.evaluations.append((step, found))
        if self.records is not None:
            epoch = self.progress.place.epoch
            self.records.journal.write({"step": step, "epoch": epoch, "eval": found})
        self.watcher.evaluated(step, found, best=improved)
        self.save()

    def _watch(self, value: float, step: int) -> None:
        """Let a rate that goes by evaluations follow one, once the warm-up has ended."""
        before = self.progress.plateau
        if before is None or step < self.setup.schedule.warmup:
            return
        after = before.after(
            value, self.setup.schedule.given, higher=deciding(self.setup.metrics).higher
        )
        self.progress = replace(self.progress, plateau=after)
        if after.rate < before.rate:
            self.watcher.said(f"step {step}: the learning rate is {after.rate:.4g} from here on")

    @property
    def is_saved(self) -> bool:
        """Whether a checkpoint has the weights of now."""
        return self.recorded and self._saved is not None and self._saved.step == self.progress.step

    def save(self) -> None:
        """Write a checkpoint of now, where training is recorded and there is none yet.

        Raises:
            GradtoolError: what was trained has a NaN: the checkpoints before stay the newest.
        """
        if not self.recorded or self._saved == self.progress:
            return
        with spanned(self.timeline, "nodes", "checkpoint"):
            self._save()

    def _save(self) -> None:
        kept = None if self.is_saved else self.kept()
        for name, value in (kept or {}).items():
            if value.dtype.kind in "fV" and has_nan(value):
                raise GradtoolError(self._no_number(f"{name!r} has a NaN after"))
        if self.records is not None:
            mark = self.records.journal.settle()
            path = self.records.folder.save(self.progress, kept, mark, self.options.keep)
            if kept is not None:
                self.watcher.saved(self.progress.step, Path(path))
        self._saved = self.progress

    def kept(self) -> Arrays:
        """All trained tensors and state, gathered from all ranks."""
        values = self.session.values(copy=False)
        if self.later:
            values |= self.session.values(*self.later, copy=False)
        apart = self.server.tables.names if self.server else ()
        found = {n: v for n, v in values.items() if n not in self.graphs.sums and n not in apart}
        if self.shard is not None:
            found = self.shard.joined(self.group, found)
        if self.server is not None and self.group.rank == 0:
            found |= self.server.whole()
        return found

    def _everywhere(self) -> Arrays:
        """The tensors common to all ranks: all of it, but for state that ranks have pieces of."""
        apart = {*self.graphs.sums, *(self.shard.state if self.shard else ())}
        apart |= self.server.tables.names if self.server else set()
        return {n: v for n, v in self.session.values(copy=False).items() if n not in apart}

    def _is_done(self) -> bool:
        return self.progress.is_done(self.setup.steps, self.setup.epochs, self.options.patience)

    def _no_number(self, what: str, step: int | None = None, why: str = "") -> str:
        saved = 0 if self._saved is None else self._saved.step
        after = f"; the checkpoint of step {saved} is the last good one" if (
            self.records is not None and saved
        ) else ""  # fmt: skip
        step = self.progress.step if step is None else step
        return f"{what} step {step}: {why or 'try a lower learning rate, or a warm-up'}{after}"
