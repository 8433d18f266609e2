"""Training graphs that take less memory, as the Python interface makes them."""
# ruff: noqa: RUF009 - `keyword` makes a field

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from gradtool.arguments import Seed, checked, takes
from gradtool.errors import UsageError
from gradtool.graph.stages import require_no_updates
from gradtool.operators.kernel_sets import AUTO, Asked
from gradtool.planning.plan import Plan
from gradtool.workloads.goals import Budget, Goal, options_of
from gradtool.workloads.options import documented, keyword
from gradtool.workloads.plan_files import PlanFile
from gradtool.workloads.planned import Planned
from gradtool.workloads.plans import Strategy, extra_flops, workload, write
from gradtool.workloads.recompute_options import RecomputeOptions
from gradtool.workloads.rewritten import Graph, Rewritten, model_of

LEAST_POINTS = 2


@checked
def mirror(
    graph: Graph,
    *,
    policy: str = "mirror",
    keep: Sequence[str] = (),
    drop: Sequence[str] = (),
    dims: Mapping[str, int] | None = None,
    kernels: Asked = "auto",
) -> Rewritten:
    """A training graph in which backward computes cheap activations again; see `recompute`.

    What native kernels run as one is decided on as a whole.

    Args:
        graph: a training graph, which is left as it is.
        policy: what may run twice, the name of a policy or a TOML file.
        keep: globs of nodes that never run twice.
        drop: globs of nodes that may, whatever the policy.
        dims: sizes of open symbols to plan for, by name; none by default.
        kernels: those to plan for: `auto`, `numpy`, `native`, `exact`, or `none`, of other
            runtimes.

    Raises:
        UsageError: sizes are open that `dims` does not give, or a name matches nothing.

    Example:
        training = gt.grad(gt.load("samples/cnn.onnx", dims={"batch": 8}))
        less = gt.mirror(training, keep=["block2.*"])
        less.plan.peak, less.kept.peak  # bytes
    """
    from gradtool.planning.recompute.policy import policy_named
    from gradtool.workloads import strategies

    chosen = policy_named(policy)
    strategy = partial(strategies.mirror, policy=chosen, keep=keep, drop=drop)
    return _rewritten(graph, strategy, dims, kernels)


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How far plans are searched for, for which sizes and kernels."""

    strategy: str | None = keyword(
        None, "what finds a budget or a slowdown: `optimal`, the default, or `min-cut`."
    )
    optimizer: str = keyword(
        "none", "whose state is part of a budget (a graph that holds its updates has it in it)."
    )
    cost: str = keyword(
        "flops", "what extra work is: `flops`, `time` measured now, or a file of measured times."
    )
    seed: Seed = keyword(0, "that of the search.")
    time_limit: float | None = keyword(
        None, "seconds in which a search goes deeper; without, the same question has the same "
        "answer everywhere.")  # fmt: skip
    dims: Mapping[str, int] | None = keyword(
        None, "sizes of open symbols to plan for, by name; none by default."
    )
    kernels: Asked = keyword(
        "auto", "those to plan for: `auto`, `numpy`, `native`, `exact`, or `none`, of other "
        "runtimes.")  # fmt: skip

    def asked(self, graph: Graph, goal: Goal) -> RecomputeOptions:
        """The same for a goal. Raises UsageError if the graph has an optimizer and one is named."""
        if self.optimizer != "none":
            require_no_updates(model_of(graph))
        beside = {name: value for name, value in vars(self).items() if name not in _OF_A_GRAPH}
        return options_of(goal, **beside)


_OF_A_GRAPH = ("dims", "kernels")


@dataclass(frozen=True, kw_only=True)
class RewriteOptions(SearchOptions):
    """The options of `recompute`, whose docstring describes each."""

    prove: bool = keyword(
        False, "`time_limit` (or two minutes) goes into the bound, and a plan that reaches it."
    )


@takes(RewriteOptions, documented(RewriteOptions))
def recompute(  # noqa: D417 - by `takes`
    graph: Graph, goal: Goal, options: RewriteOptions
) -> Rewritten:
    """A training graph that computes parts of forward again: the same bits in less memory.

    The graph given is left as it is; sizes that it leaves open stay open.

    Args:
        graph: a training graph.
        goal: the name of a strategy (of `strategies.STRATEGIES`), `Budget`, `Slowdown`,
            `Checkpoints`, or a plan that `load_plan` read.

    Raises:
        UsageError: there is no such strategy or checkpoint, sizes are open, or the graph has an
            optimizer and one is named.
        OverBudget: no plan within the budget was found, with what can be reached.

    Example:
        training = gt.grad(gt.load("samples/cnn.onnx", dims={"batch": 8}))
        less = gt.recompute(training, gt.Budget("80%"), strategy="min-cut")
        less.plan.peak, less.proof.extra  # bytes, FLOPs
    """
    asked, kernels = options.asked(graph, goal), options.kernels
    if isinstance(goal, PlanFile) and kernels == AUTO:
        kernels = goal.kernels
    return _rewritten(graph, asked.plans(), options.dims, kernels)


@dataclass(frozen=True)
class Points:
    """The plans of a frontier, that of keeping everything, and the bytes of optimizer state."""

    found: tuple[Planned, ...]
    kept: Plan
    state: int


@takes(SearchOptions, {})
def frontier(graph: Graph, points: int, options: SearchOptions) -> Points:
    """The cheapest plans within several budgets, from the least peak found to keeping everything.

    Each has a `plan` and a `proof` with its budget, extra work and bound; work never rises with
    the budget.

    Raises:
        UsageError: sizes are open that `dims` does not give, there is no such strategy, or the
            graph has an optimizer and one is named.
    """
    from gradtool.workloads.budgets.frontier import frontier as frontier_of
    from gradtool.workloads.budgets.limits import Budget as Limit

    asked = options.asked(graph, Budget("min"))
    if points < LEAST_POINTS:
        raise UsageError(f"a frontier has {LEAST_POINTS} points at least, not {points}")
    asked.plans()  # which refuses what does not go together
    work = workload(model_of(graph), options.dims, options.kernels)
    search = asked.search()(work)
    state = Limit.of("min", options.optimizer).state(work)
    return Points(tuple(frontier_of(work, points, search)), work.kept, state)


def _rewritten(
    graph: Graph, strategy: Strategy, dims: Mapping[str, int] | None, kernels: Asked
) -> Rewritten:
    work = workload(model_of(graph), dims, kernels)
    found: Planned = strategy(work)
    extra = extra_flops(found.plan, work.kept)
    return Rewritten(
        write(work, found), found.plan, work.kept, extra, found.notes, work=work, planned=found
    )
