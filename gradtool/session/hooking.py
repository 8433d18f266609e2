"""Hooks of a session: around steps, around backward nodes, on final gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from gradtool.exec.bound_model import Resident
from gradtool.exec.hooks import Hooks, OnEnd, OnGradient, OnNode, OnStart
from gradtool.graph.stages import stage
from gradtool.session.feeding import matching

Remove = Callable[[], None]
T = TypeVar("T")


class Hooking:
    """Callbacks in the course of a step; each method returns a function that removes its own."""

    _hooks: Hooks
    _gradients: dict[str, str]
    _train: Resident

    def before_step(self, call: OnStart) -> Remove:
        """Call a function before each step.

        Args:
            call: is given the inputs by name, in the shapes of the step, where they lie in the
                arena.

        Returns:
            A function that takes the hook back.
        """
        return _added(self._hooks.before, call)

    def after_step(self, call: OnEnd) -> Remove:
        """Call a function after each step.

        Args:
            call: is given the `Result`.

        Returns:
            A function that takes the hook back.
        """
        return _added(self._hooks.after, call)

    def before_node(self, call: OnNode, *patterns: str) -> Remove:
        """Call a function before backward nodes run.

        Args:
            call: is given the node's `name`, `op`, `inputs` and `outputs`: arrays by name.
            patterns: names or globs of nodes; all backward nodes by default.

        Returns:
            A function that takes the hook back.

        Raises:
            UsageError: a pattern matches nothing.
        """
        return _added(self._hooks.nodes, ("before", self._nodes(patterns), call))

    def after_node(self, call: OnNode, *patterns: str) -> Remove:
        """Call a function after backward nodes have run; see `gradtool.Session.before_node`."""
        return _added(self._hooks.nodes, ("after", self._nodes(patterns), call))

    def on_gradient(self, call: OnGradient, *patterns: str) -> Remove:
        """Call a function with each gradient that is final.

        Args:
            call: is given a name and the array of its gradient, in the shape of that value.  It may
                change the array in place: updates and results are made of what it leaves there.
            patterns: names or globs of the values that gradients are of; all by default.

        Returns:
            A function that takes the hook back.

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
