"""The options of a session."""
# ruff: noqa: RUF009 - `keyword` makes a field

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gradtool.exec.binding import PLAN_MEMORY
from gradtool.operators.kernel_sets import Asked
from gradtool.planning.shared_layout import Parts
from gradtool.session.feeding import Batch
from gradtool.session.held import StateAccess
from gradtool.workloads.options import keyword
from gradtool.workloads.rewritten import Graph

Ahead = Callable[[Batch], Batch]


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """The options of `Session`, whose docstring describes each."""

    update: Graph | None = keyword(
        None, "what a graph that adds up gradients leaves to `Session.update` (see "
        "`gradtool.passes.accumulation`).")  # fmt: skip
    forward: Graph | None = keyword(
        None, "what evaluates, where that is not the forward model inside of the graph (see "
        "`gradtool.passes.evaluation`).")  # fmt: skip
    ahead: Ahead | None = keyword(
        None, "gives what a loss needs to know of a batch (see `gradtool.passes.loss_parts`)."
    )
    parts: Parts | None = keyword(
        None, "those of parameters and sums in `update`: by name, that of the whole, and bytes "
        "from its start.")  # fmt: skip
    share: StateAccess | None = keyword(
        None, "an open session on the same device: parameters and statistics of one name are one "
        "tensor in both, with the values that they have there; each has its own state of an "
        "optimizer.")  # fmt: skip
    device: str = keyword("cpu", "`cpu`, `cuda`, `cuda:N` or `auto`.")
    kernels: Asked = keyword(
        "auto", "`numpy`; `native`: the library computes what it can on the CPU; `exact`: without "
        "Winograd's convolutions; `auto`: on the CPU `exact` if it loads, else `numpy`, on CUDA "
        "CuPy's.")  # fmt: skip
    keep_gradients: Sequence[str] = keyword(
        (), "values inside of the graph, and parameters that it updates, whose gradients are "
        "results as well; names or globs.")  # fmt: skip
    check_nan: bool = keyword(False, "a step ends at the first node with a NaN.")
    plan_memory: int = keyword(
        PLAN_MEMORY, "the bytes of host memory, beside the arena, that plans of different sizes "
        "may take, of steps and of evaluations each: those used last are kept, one at least."
    )  # fmt: skip
    max_turns: int | None = keyword(
        None, "the most turns of loops in a step; docs/limits.md has the default."
    )
    max_dynamic: int | None = keyword(
        None, "the most bytes of values whose sizes depend on data; see there."
    )
