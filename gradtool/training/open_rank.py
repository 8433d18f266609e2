"""The session, data and schedules of a rank: its part of the graphs, and a session of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gradtool.errors import UsageError
from gradtool.planning.shared_layout import NO_PARTS
from gradtool.ranks.group import Group
from gradtool.session import Session
from gradtool.training import scaling
from gradtool.training.callbacks import Begun, Watcher
from gradtool.training.checkpoints import Checkpoint, Folder
from gradtool.training.evaluating import counter_for
from gradtool.training.graphs import Graphs
from gradtool.training.options import TrainOptions
from gradtool.training.progress import Progress
from gradtool.training.row_tables import RowServer, RowTables, tabled
from gradtool.training.setup import Setup
from gradtool.training.sharding import Shard, sharded
from gradtool.training.staged import opened
from gradtool.training.stages import PipelinePosition, standing


@dataclass(frozen=True)
class Opened:
    """A rank ready to train, from a checkpoint or from the beginning.

    `place` is where it stands in a pipeline, `shard` what it updates of each parameter, `server`
    what others read rows of tables from: each None where the model is not cut like that.
    """

    setup: Setup
    session: Session
    progress: Progress
    place: PipelinePosition | None = None
    shard: Shard | None = None
    server: RowServer | None = None


def open_rank(
    setup: Setup, found: Checkpoint | None, group: Group, watcher: Watcher, folder: Folder | None
) -> Opened:
    """Open what a rank of a group trains with; all of the group do so together.

    Raises:
        UsageError: the model cannot be cut as is asked for, or there is no such device.
        NoRoom: memory does not suffice for the widest batch of texts.
    """
    options = setup.options
    scale = scaling.first(options.loss_scale, setup.graphs.loss_type)
    progress = Progress(scale=scale, plateau=setup.schedule.begun())
    if found is not None:
        setup.graphs.require(found.arrays)
        progress = _gone_on(found, setup)
    device = _device(options, group)
    if options.stages > 1:
        place = standing(group, options.stages)
        if found is not None:
            setup.graphs.put(found.arrays)
        staged, graphs, shard = opened(setup, place, found.arrays if found else None)
        _set(staged, graphs, found)
        return Opened(replace(setup, graphs=graphs), staged, progress, place=place, shard=shard)
    setup, tables, shard = _cut(setup, group, watcher)
    if found is not None:
        arrays = tables.cut(found.arrays, group.rank) if tables else found.arrays
        setup.graphs.put(shard.cut(arrays) if shard else arrays)
    parts = shard.parts if shard else NO_PARTS
    counter = counter_for(setup, 0)
    session = Session(
        setup.graphs.model, update=setup.graphs.update, forward=setup.graphs.forward,
        ahead=counter.alone if counter else None, parts=parts, device=device, kernels=setup.kernels,
    )  # fmt: skip
    _set(session, setup.graphs, found)
    _make_room(setup, session)
    server = _server(tables, setup, session, group, folder)
    if server is not None and options.ema is not None and setup.metrics:
        watcher.said("warning: means are not evaluated: ranks have blocks of the tables")
    return Opened(setup, session, progress, shard=shard, server=server)


def _make_room(setup: Setup, session: Session) -> None:
    """Take the memory of the widest batch of texts, before the first step."""
    texts = setup.data[0].texts
    if texts is None or texts.spread is None:
        return
    batch = texts.cut(setup.sample(setup.part), max(texts.text.widths(texts.lengths)))
    graphs = setup.graphs
    rate = {} if graphs.update is not None else {graphs.rate: graphs.first}
    session.make_ready({**batch, **graphs.drawing(0, 0, 0), **rate})


def begun_of(setup: Setup, progress: Progress, folder: Folder | None) -> Begun:
    """Messages before the first step."""
    recipe = {**setup.described()["recipe"], "steps": setup.steps, "epochs": setup.epochs}
    apart, unset = ("length", "evaluation"), ("None", "()")
    order, texts = setup.order, setup.data[0].texts
    return Begun(
        steps=setup.steps,
        first=progress.step,
        per_epoch=order.batches if order else None,
        batch=order.size if order else None,
        micro_batches=setup.options.micro_batches,
        run=None if folder is None else folder.path,
        tokens=float(texts.lengths.mean()) * order.size if texts and order else None,
        options={n: v for n, v in recipe.items() if n not in apart and str(v) not in unset},
    )


def _gone_on(found: Checkpoint, setup: Setup) -> Progress:
    """The position of a checkpoint; a changed rate by evaluations begins anew."""
    progress, rates, recipe = found.progress, setup.schedule, found.of["recipe"]
    plateau = progress.plateau if recipe["schedule"] == rates.text else rates.begun()
    if plateau is not None and recipe["lr"] != rates.peak:
        plateau = replace(plateau, rate=rates.peak)
    return replace(progress, plateau=plateau)


def _set(session: Session, graphs: Graphs, found: Checkpoint | None) -> None:
    """Set what was frozen and set before a checkpoint."""
    if found is not None:
        session.set({n: np.asarray(found.arrays[n]) for n in graphs.frozen(found.arrays)})


def _cut(
    setup: Setup, group: Group, watcher: Watcher
) -> tuple[Setup, RowTables | None, Shard | None]:
    """The graphs of a rank that has rows of tables and a part of the updates, as is asked for."""
    options, tables, shard = setup.options, None, None
    if options.shard_tables and group.size > 1:
        graphs, tables = tabled(
            setup.graphs, setup.updates, options.ema, group, options.shard_tables,
            options.staleness, setup.dims, options.micro_batches,
        )  # fmt: skip
        setup = replace(setup, graphs=graphs)
        for line in graphs.said:
            watcher.said(f"warning: {line}")
    if options.shard != "none" and group.size > 1:
        graphs, shard = sharded(setup.graphs, setup.updates, options.ema, group, options.shard)
        setup = replace(setup, graphs=graphs)
    return setup, tables, shard


def _device(options: TrainOptions, group: Group) -> str:
    """The device to train on.

    Raises:
        UsageError: several ranks shall train on another one than the CPU.
    """
    if group.size == 1:
        return options.place
    if options.place not in ("auto", "cpu"):
        raise UsageError(f"several ranks train on the CPU, not on {options.place}")
    return "cpu"


def _server(
    tables: RowTables | None, setup: Setup, session: Session, group: Group, folder: Folder | None
) -> RowServer | None:
    """The tables that other ranks read rows from."""
    if tables is None:
        return None
    session.make_ready({**setup.sample(setup.part), **setup.graphs.drawing(0, 0, 0)})
    return RowServer(tables, group, session, None if folder is None else folder.path)
