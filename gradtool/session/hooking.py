"""Hooks of a session: around steps, around backward nodes, on final gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from gradtool.exec.hooks import Hooks, OnEnd, OnGradient, OnNode, OnStart
from gradtool.exec.resident import Resident
from gradtool.graph.stages import stage
from gradtool.session.matching import matching

Remove = Callable[[], None]
T = TypeVar("T")


class Hooking:
    """What may be called in the course of a step; each method returns what takes it back."""

    _hooks: Hooks
    _gradients: dict[str, str]
    _train: Resident

    def before_step(self, call: OnStart) -> Remove:
        """Call a function with the inputs, by name, where they lie in the arena."""
        return _added(self._hooks.before, call)

    def after_step(self, call: OnEnd) -> Remove:
        """Call a function with the result of each step."""
        return _added(self._hooks.after, call)

    def before_node(self, call: OnNode, *patterns: str) -> Remove:
        """Call a function with each backward node, or those that match, before it runs.

        It is given the node's `name`, `op`, `inputs` and `outputs`: arrays by name.
        """
        return _added(self._hooks.nodes, ("before", self._nodes(patterns), call))

    def after_node(self, call: OnNode, *patterns: str) -> Remove:
        """Call a function with each backward node, or those that match, when it has run."""
        return _added(self._hooks.nodes, ("after", self._nodes(patterns), call))

    def on_gradient(self, call: OnGradient, *patterns: str) -> Remove:
        """Call a function with the name and the array of each final gradient, or those that match.

        It may change the array in place: updates and results are made of what it leaves there.
        Names are those of the values that the gradients are of.

        Raises:
            UsageError: a pattern matches nothing.
        """
        names = matching(patterns or ("*",), self._gradients, "gradient of")
        return _added(self._hooks.gradients, (frozenset(names), call))

    def _nodes(self, patterns: Sequence[str]) -> Sequence[str]:
        """Patterns for backward nodes, each of which matches some."""
        names = {
            node.name or "": None
            for node in self._train.model.graph
            if stage(node) in ("backward", "recompute")
        }
        if patterns:
            matching(patterns, names, "backward node")
        return patterns or ("*",)


def _added(hooks: list[T], hook: T) -> Remove:
    hooks.append(hook)

    def remove() -> None:
        """Call it no more."""
        if hook in hooks:
            hooks.remove(hook)

    return remove
