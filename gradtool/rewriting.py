"""Training graphs that take less memory, as the Python interface makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import onnx_ir as ir

from gradtool import strategies
from gradtool.errors import UsageError
from gradtool.passes.training import TrainingGraph
from gradtool.planning.plan import Plan
from gradtool.planning.policy import policy_named
from gradtool.plans import Planned, Strategy, extra_flops, workload, write
from gradtool.text import suggest


@dataclass(frozen=True)
class Rewritten:
    """A training graph in the order of a plan, with clones of what is computed again.

    `plan` and `kept` are planned for the sizes in `plan.program.dims`; `extra_flops` is what is
    computed beyond keeping everything, None if an operator of unknown cost runs again; `notes` are
    lines for people.
    """

    model: ir.Model
    plan: Plan
    kept: Plan
    extra_flops: int | None
    notes: tuple[str, ...]


Graph = TrainingGraph | Rewritten | ir.Model


def model_of(graph: Graph) -> ir.Model:
    """The model inside a training graph, or the model itself."""
    return graph if isinstance(graph, ir.Model) else graph.model


def mirror(
    graph: Graph,
    *,
    policy: str = "mirror",
    keep: Sequence[str] = (),
    drop: Sequence[str] = (),
    dims: Mapping[str, int] | None = None,
) -> Rewritten:
    """A training graph in which backward computes cheap activations again; see `recompute`.

    `policy` names what may run twice, or is a TOML file; `keep` and `drop` are globs of nodes that
    never do, or may whatever the policy.

    Raises:
        UsageError: sizes are open that `dims` does not give, or a name matches nothing.
    """
    chosen = policy_named(policy)
    return _rewritten(graph, partial(strategies.mirror, policy=chosen, keep=keep, drop=drop), dims)


def recompute(
    graph: Graph,
    strategy: str | None = None,
    *,
    checkpoints: Sequence[str] = (),
    dims: Mapping[str, int] | None = None,
) -> Rewritten:
    """A training graph that computes parts of forward again: the same bits in less memory.

    `strategy` is `keep`, `none` (only the order changes), `mirror`, `sqrt` or `segments`; or
    `checkpoints` names the values between which everything is computed again.  The graph given is
    left as it is; sizes that it leaves open stay open, `dims` are those to plan for.

    Raises:
        UsageError: there is no such strategy or checkpoint, or sizes are open.
    """
    if (strategy is None) == (not checkpoints):
        raise UsageError("say what to compute again: a strategy, or checkpoints")
    if strategy is None:
        return _rewritten(graph, partial(strategies.checkpoints, names=checkpoints), dims)
    if strategy not in strategies.STRATEGIES:
        hint = suggest(strategy, strategies.STRATEGIES)
        listed = ", ".join(strategies.STRATEGIES)
        raise UsageError(f"no strategy {strategy!r}{hint}; there are {listed}")
    return _rewritten(graph, strategies.STRATEGIES[strategy], dims)


def _rewritten(graph: Graph, strategy: Strategy, dims: Mapping[str, int] | None) -> Rewritten:
    work = workload(model_of(graph), dims)
    found: Planned = strategy(work)
    extra = extra_flops(found.plan, work.kept)
    return Rewritten(write(work, found), found.plan, work.kept, extra, found.notes)
