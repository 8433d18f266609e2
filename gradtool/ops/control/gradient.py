"""Gradients of control flow: If, Loop and Scan.

A rule returns the gradients of the node's inputs and then those of its captured values.
"""

from __future__ import annotations

from gradtool.emit.builder import Builder
from gradtool.graph.typed import Node, Tensor
from gradtool.ops.control.gradient_if import backward_if
from gradtool.ops.control.gradient_loops import backward_turns
from gradtool.ops.control.gradient_turns import Turns
from gradtool.ops.gradients import Gradients, gradient


@gradient("If")
def if_(op: Builder, node: Node, *dys: Tensor) -> Gradients:
    """`y = then(v…) if condition else other(v…)`, of captured values v.

    dv is that of the branch that was taken: an If on the same condition.
    """
    return backward_if(op, node, dys)


@gradient("Loop")
def loop(op: Builder, node: Node, *dys: Tensor | None) -> Gradients:
    """`h[t+1], y[t] = body(t, h[t], v…)` while the condition of the turn before holds.

        dh[t], dv[t] = body'(dh[t+1], dy[t])        dv = Σ dv[t]

    in reverse order of the turns that were taken, as many as forward has stacked values of.
    """
    return backward_turns(op, Turns.of_loop(node), dys)


@gradient("Scan")
def scan(op: Builder, node: Node, *dys: Tensor | None) -> Gradients:
    """`h[t+1], y[t] = body(h[t], x[t], v…)`.

        dh[t], dx[t], dv[t] = body'(dh[t+1], dy[t])        dv = Σ dv[t]

    in reverse order.
    """
    return backward_turns(op, Turns.of_scan(node), dys)
