"""The evaluator of a training, and whether its loss is a sum over parts of a batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gradtool.errors import UsageError
from gradtool.ranks.group import Group
from gradtool.session import Session
from gradtool.training.counting import Counter
from gradtool.training.evaluation import Evaluator
from gradtool.training.setup import Setup
from gradtool.training.sharding import Shard
from gradtool.training.stages import PipelinePosition


def require_parts(setup: Setup) -> None:
    """Refuse parts of a batch whose losses do not make that of the whole.

    Raises:
        UsageError: naming where examples are mixed.
    """
    parts, options = setup.graphs.parts, setup.options
    if parts.kind is not None:
        return
    why = f"the loss of a batch does not follow from those of its parts ({parts.why})"
    if setup.ranks > 1:
        raise UsageError(f"{why}: train on one process, or in stages without replicas")
    if options.micro_batches > 1:
        raise UsageError(f"{why}: leave out micro-batches")
    if setup.evaluates_loss:
        data, batch = setup.data[1], setup.part
        fixed = data.takes.size
        if data.examples is None or data.examples > batch or fixed not in (None, data.examples):
            raise UsageError(
                f"{why}, nor that of an evaluation from its batches of {batch}: name another "
                "--metric, or evaluate as many examples as a batch has at most"
            )


def counter_for(setup: Setup, which: int) -> Counter | None:
    """The counter of a whole batch, if the loss needs it."""
    if not setup.graphs.parts.inputs:
        return None
    return Counter(setup.graphs, setup.data[which])


def of_means(
    evaluator: Evaluator, session: Session, shard: Shard | None, group: Group
) -> dict[str, Any]:
    """Each metric of the means of weights, as `ema NAME`; weights are as before afterwards.

    Means that ranks have pieces of are put together on each.
    """
    joined = {}
    if shard is not None:
        means = {n: w for n, w in shard.state.items() if n in session.averages.values()}
        held = session.values(copy=False)
        joined = replace(shard, state=means).joined(group, {n: held[n] for n in means if n in held})
    with session.averaged(joined):
        return {f"ema {name}": value for name, value in evaluator().items()}


def evaluator_for(
    setup: Setup, session: Session, group: Group, place: PipelinePosition | None
) -> Evaluator | None:
    """The evaluator of a training, if there is something to watch."""
    if not setup.metrics:
        return None
    counter = counter_for(setup, 1) if setup.evaluates_loss else None
    how = (session, setup.data[1], setup.metrics, setup.part, setup.graphs.parts, counter)
    if place is None:
        return Evaluator(*how, group)
    return Evaluator(*how, place.replicas, group, tells=place.is_last)
