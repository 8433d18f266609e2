"""What evaluates a training: by the loss of a batch as it is of its examples, on all its ranks."""

from __future__ import annotations

from gradtool.ranks.group import Group
from gradtool.session import Session
from gradtool.training.evaluation import Evaluator, Reduction, reduction_of
from gradtool.training.setup import Setup
from gradtool.training.staged import told_by_last
from gradtool.training.stages import Standing
from gradtool.training.watching import Watcher

INEXACT = "the loss of two examples is neither the sum nor the mean of their losses: {what} by mean"


def reduction_for(
    setup: Setup, session: Session, watcher: Watcher, place: Standing | None
) -> Reduction:
    """What the loss of a batch is of those of its examples, where it matters."""
    parts = setup.options.micro_batches * setup.ranks > 1
    if not parts and not setup.metrics:
        return "mean"
    found = reduction_of(session, setup.data[0], setup.sample(2))
    if place is not None:
        found = told_by_last(place, found)
    if found is None:
        what = "parts of a batch are put together" if parts else "an evaluation is put together"
        watcher.said(f"warning: {INEXACT.format(what=what)}")
    return found or "mean"


def evaluator_for(
    setup: Setup, session: Session, reduction: Reduction, group: Group, place: Standing | None
) -> Evaluator | None:
    """What evaluates a training, where something is watched."""
    if not setup.metrics:
        return None
    how = (session, setup.data[1], setup.metrics, setup.part, reduction)
    if place is None:
        return Evaluator(*how, group)
    return Evaluator(*how, place.replicas, group, tells=place.is_last)
