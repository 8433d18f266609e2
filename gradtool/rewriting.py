"""Training graphs that take less memory, as the Python interface makes them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import onnx_ir as ir

from gradtool import strategies
from gradtool.asked import Asked
from gradtool.budgets.frontier import POINTS
from gradtool.budgets.frontier import frontier as frontier_of
from gradtool.budgets.search import probing
from gradtool.passes.stages import require_no_updates
from gradtool.passes.training import TrainingGraph
from gradtool.planning.budget.proof import Proof
from gradtool.planning.plan import Plan
from gradtool.planning.polish.seeds import Solver
from gradtool.planning.recompute.policy import policy_named
from gradtool.plans import Planned, Strategy, extra_flops, workload, write


@dataclass(frozen=True)
class Rewritten:
    """A training graph in the order of a plan, with clones of what is computed again.

    `plan` and `kept` are planned for the sizes in `plan.program.dims`; `extra_flops` is what is
    computed beyond keeping everything, None if an operator of unknown cost runs again; `notes` are
    lines for people.  `proof` has the extra work, bound and gap of a plan within a budget.
    """

    model: ir.Model
    plan: Plan
    kept: Plan
    extra_flops: int | None
    notes: tuple[str, ...]
    proof: Proof | None = None


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
    budget: str | int | None = None,
    max_slowdown: str | float | None = None,
    plan: str | os.PathLike[str] | None = None,
    optimizer: str = "none",
    cost: str = "flops",
    seed: int = 0,
    time_limit: float | None = None,
    solver: Solver = "auto",
    dims: Mapping[str, int] | None = None,
) -> Rewritten:
    """A training graph that computes parts of forward again: the same bits in less memory.

    `budget` is the memory that a step may take (bytes, `8GiB`, `60%` of keeping everything, or
    `min`), the state of `optimizer` included (a graph that holds its updates has it in it);
    `max_slowdown` the extra work that it may do (a share of one step, or `20%`); `checkpoints`
    names the values between which everything is computed again; `plan` is a file.  Or `strategy` is
    one of `strategies.STRATEGIES`.  `cost` says what extra work is: `flops`, `time` measured now,
    or a file of measured times.  A search may take `time_limit` seconds; without, the same question
    has the same answer everywhere, unless `solver` is `compiled` or `cp-sat` (up to the default
    effort, `auto` and `native` use nothing that may be missing).  The graph given is left as it is;
    sizes that it leaves open stay open, `dims` are those to plan for.

    Raises:
        UsageError: there is no such strategy or checkpoint, sizes are open, or the graph has an
            optimizer and one is named.
        GradtoolError: no plan within the budget was found, with what can be reached.
    """
    if optimizer != "none":
        require_no_updates(model_of(graph))
    asked = Asked(
        strategy=strategy,
        checkpoints=checkpoints or None,
        budget=budget,
        max_slowdown=max_slowdown,
        plan=plan,
        optimizer=optimizer,
        cost=cost,
        seed=seed,
        time_limit=time_limit,
        solver=solver,
    )
    return _rewritten(graph, asked.plans(), dims)


def frontier(
    graph: Graph,
    points: int = POINTS,
    *,
    cost: str = "flops",
    seed: int = 0,
    time_limit: float | None = None,
    dims: Mapping[str, int] | None = None,
) -> list[Planned]:
    """The cheapest plans within several budgets, from the least peak found to keeping everything.

    Each has a `plan` and a `proof` with its budget, extra work and bound; work never rises with
    the budget.

    Raises:
        UsageError: sizes are open that `dims` does not give.
    """
    work = workload(model_of(graph), dims)
    asked = Asked(cost=cost, seed=seed, time_limit=time_limit)
    return frontier_of(work, points, replace(asked.search()(work), effort=probing(work)))


def _rewritten(graph: Graph, strategy: Strategy, dims: Mapping[str, int] | None) -> Rewritten:
    work = workload(model_of(graph), dims)
    found: Planned = strategy(work)
    extra = extra_flops(found.plan, work.kept)
    return Rewritten(write(work, found), found.plan, work.kept, extra, found.notes, found.proof)
