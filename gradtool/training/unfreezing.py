"""A training whose parameters are not all trained from the first epoch on."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gradtool.errors import GradtoolWarning, UsageError
from gradtool.passes.synchronized import synchronized
from gradtool.ranks.group import Group
from gradtool.session import Session
from gradtool.text.units import format_bytes
from gradtool.training.callbacks import Watcher
from gradtool.training.checkpoints import Checkpoint, Folder
from gradtool.training.evaluating import counter_for, evaluator_for
from gradtool.training.fit import arena_bytes
from gradtool.training.graphs import Graphs, Recipe, evaluated_in_parts, graphs_of
from gradtool.training.memory_fit import fitted_to
from gradtool.training.open_rank import open_rank
from gradtool.training.phases import (
    Phase,
    at_last,
    earlier,
    naming,
    require_all,
    unfrozen_by,
)
from gradtool.training.setup import PLAN_SUFFIX, Asked, Setup, planned, prepared, sizes_of_part

if TYPE_CHECKING:
    from gradtool.training.loop import Loop


def prepared_in_phases(asked: Asked) -> Setup:
    """The setup of a training in phases, for `--unfreeze`; see `prepared`.

    Raises:
        UsageError: as there, or a glob matches nothing, or its epoch is after the end.
    """
    unfrozen, plan = unfrozen_by(asked.options.unfreeze), asked.options.plan
    if unfrozen and plan.endswith(PLAN_SUFFIX):
        raise UsageError(
            f"--unfreeze: each phase has a graph of its own, and the plan in {plan} is of "
            "one: name a strategy"
        )
    recipe = replace(asked.recipe, options=at_last(asked.recipe.options, unfrozen))
    with naming(unfrozen):
        made = prepared(replace(asked, recipe=recipe))
    if not unfrozen:
        return made
    require_all(unfrozen, made.graphs, _epochs(made))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GradtoolWarning)  # the last phase has told
        phases = [
            Phase(start, _formed(made, replace(recipe, options=each), Watcher()))
            for start, each in earlier(recipe.options, made.graphs.learns)
        ]
    made = replace(made, phases=(*phases, Phase(max(unfrozen), made.graphs)))
    _tell(made, asked.watcher)
    return made


def at(setup: Setup, epoch: int) -> Setup:
    """The training as it is in an epoch, counted from 0."""
    found = [phase.graphs for phase in setup.phases if phase.start <= epoch]
    return replace(setup, graphs=found[-1]) if found else setup


def resumed(setup: Setup, found: Checkpoint | None) -> Setup:
    """The training as it was in the step that a checkpoint is of; at the beginning without one."""
    place = None if found is None else found.progress.place
    return at(setup, 0 if place is None else max(place.epoch - (place.batch == 0), 0))


def later(setup: Setup, graphs: Graphs) -> list[str]:
    """The parameters that are trained at last, and not by these graphs."""
    return sorted(setup.graphs.learns - graphs.learns) if setup.phases else []


def begin_phase(
    setup: Setup, loop: Loop, group: Group, watcher: Watcher, folder: Folder | None
) -> Session:
    """Go on in the graphs of the epoch that begins; the session that then steps.

    What was trained so far comes out of the checkpoint of now, where there is one.
    """
    step, epoch = loop.progress.step, loop.progress.place.epoch
    phase = at(setup, epoch)
    if phase.graphs is loop.graphs:
        return loop.session
    loop.save()
    arrays: Mapping[str, Any] = {}
    if folder is None:
        arrays = {name: array.copy() for name, array in loop.kept().items()}
    else:
        group.gather(np.array(step))  # the first rank has written it by then
        arrays = folder.load(step).arrays
    loop.session.close()
    held = {n: v for m in phase.graphs.models for n, v in m.graph.initializers.items()}
    types = {name: held[name].dtype for name in arrays}
    arrays = {name: _as(array, types[name]) for name, array in arrays.items()}
    phase.graphs.put(arrays)
    opened = open_rank(phase, None, group, watcher, folder)
    opened.session.set({n: np.asarray(arrays[n]) for n in phase.graphs.frozen(arrays)})
    loop.session, loop.later = opened.session, later(setup, phase.graphs)
    loop.setup = replace(loop.setup, graphs=phase.graphs)
    loop.evaluator = evaluator_for(phase, opened.session, group, None)
    loop.counter = counter_for(phase, 0) if phase.graphs.update is not None else None
    loop.reduce()
    return opened.session


def _as(array: Any, dtype: Any) -> Any:
    """An array in the type of an initializer: one that becomes a master gets wider."""
    wanted = np.dtype(dtype.numpy())
    return array if array.dtype == wanted else np.asarray(array).astype(wanted)


def _epochs(made: Setup) -> int | None:
    """The epochs of a training, one that is not finished included; None where nobody knows."""
    if made.epochs is not None or made.steps is None or made.order is None:
        return made.epochs
    return -(-made.steps // made.order.batches)


def _formed(made: Setup, recipe: Recipe, watcher: Watcher) -> Graphs:
    """The graphs of an earlier phase, in as many parts and by the plan as those of the last one."""
    options, takes = made.options, made.data[0].takes
    in_two = made.graphs.update is not None
    if options.memory is not None:
        fit = fitted_to(
            options.memory, recipe, options, made.kernels, made.data, watcher, made.steps,
            chosen=True,
        )  # fmt: skip
        return fit.chosen.graphs
    graphs = graphs_of(recipe, options, in_two=in_two, takes=takes)
    if options.sync_batchnorm and made.ranks > 1:
        graphs = graphs.planned(synchronized(graphs.model, made.ranks))
    if len(made.data) > 1 and not in_two:
        graphs = evaluated_in_parts(graphs, takes)
    if options.plan == "keep":
        return graphs
    return graphs.planned(planned(replace(made, graphs=graphs)))


def _tell(made: Setup, watcher: Watcher) -> None:
    """Say how many parameters each phase trains, and the memory that is planned for it."""
    everything = len(made.graphs.learns)
    for phase in made.phases:
        of_phase = replace(made, graphs=phase.graphs)
        size = ""
        if made.dims is not None:
            dims = sizes_of_part(of_phase)
            evaluated = [dims] * (len(made.data) - 1)
            planned = arena_bytes(phase.graphs, dims, evaluated, made.kernels)
            size = f", in {format_bytes(planned)}"
        count = len(phase.graphs.learns)
        watcher.said(
            f"from epoch {phase.start + 1} on: {count} of {everything} parameters are trained{size}"
        )
