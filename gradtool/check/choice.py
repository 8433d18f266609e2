"""The plan of a case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradtool.workloads.plans import Strategy


@dataclass(frozen=True)
class Choice:
    """A strategy by name, or one of `mirror` with a policy, a budget, checkpoints, a plan file.

    `text` is its name for people; by default everything is kept.  `asked` are arguments of
    `gradtool.workloads.options.RecomputeOptions`; `policy`, `keep` and `drop` those of mirroring; a
    plan file and the file of a policy are relative paths.
    """

    text: str = "keep"
    asked: Mapping[str, Any] = field(default_factory=lambda: {"strategy": "keep"})
    policy: str | None = None
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The files of the plan."""
        policy = self.policy or ""
        found = (self.asked.get("plan"), policy if policy.endswith(".toml") else None)
        return tuple(path for path in found if path)

    @property
    def optimizer(self) -> str:
        """The optimizer of the parameters: part of the graph, or if given of the budget."""
        return str(self.asked.get("optimizer", "none"))

    def without_optimizer(self) -> Choice:
        """The same plan of a graph with the optimizer's state in it, so that it counts."""
        asked = {key: value for key, value in self.asked.items() if key != "optimizer"}
        return replace(self, asked=asked)

    def strategy(self, folder: Path) -> Strategy:
        """The strategy for planning a training graph; files are looked for in `folder`.

        Raises:
            UsageError: the choice cannot be read or combined.
        """
        from gradtool.planning.recompute.policy import POLICIES, policy_named
        from gradtool.workloads import strategies
        from gradtool.workloads.recompute_options import RecomputeOptions

        if self.policy is not None:
            named = self.policy in POLICIES or not self.policy.endswith(".toml")
            policy = policy_named(self.policy if named else str(folder / self.policy))
            return partial(strategies.mirror, policy=policy, keep=self.keep, drop=self.drop)
        asked = dict(self.asked)
        if "plan" in asked:
            asked["plan"] = folder / asked["plan"]
        return RecomputeOptions(**asked).plans()
