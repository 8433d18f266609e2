"""Search of an order within a limit, over sets of run steps.

A state is a set of steps closed under precedence.  From a state the search goes on until it finds
one that holds no more bytes; then it drops everything else and starts again from there: if any
order fits the limit, one that passes through that state does (docs/bounds.md).  So if a search
from the first state ends without an order, none fits.

Source: sets of run steps as states and the limit as a budget are of Ahn et al. 2020
(arXiv:2003.02369), §3; commitment to valleys is Liu's for trees (1987, doi:10.1137/0608004).  We
differ: we commit in any graph, by minimum cuts, and search from the start, the end and the middle.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from gradtool.planning.flow import Mask
from gradtool.planning.orders.bounds import least_live
from gradtool.planning.orders.graph import bits, mask
from gradtool.planning.orders.moves import Moves, State, steps

_FEW = 16  # moves from a state: one of more counts as several, as each of them is weighed


@dataclass(frozen=True)
class Found:
    """The moves to the goal (None if none were found); whether there are none, for certain."""

    path: tuple[int, ...] | None
    exhausted: bool


class Search:
    """A search of moves within a limit (bytes), over at most so many states of few moves."""

    def __init__(self, moves: Moves, limit: int, states: int) -> None:
        self.moves, self.limit, self.left = moves, limit, states

    def run(self, start: State, goal: int) -> Found:
        """Moves from a state to the one after the steps of `goal`."""
        state = self._settled(start)
        path = steps(state.path)
        while state.run != goal:
            found = self._valley(state._replace(path=None), goal)
            if found is None:
                return Found(None, exhausted=self.left > 0)
            lowest = found if found.run == goal else self._lowest(state, found)
            state = self._settled(lowest)
            path += steps(state.path)
        return Found(tuple(path), exhausted=False)

    def _settled(self, state: State, ready: frozenset[int] | None = None) -> State:
        """The state after all fitting moves that add nothing: these are valleys at once.

        Only the `ready` steps among the possible moves are weighed, where all others add bytes.
        """
        waiting = list(state.ready)
        fresh = set(waiting if ready is None else ready.intersection(waiting))
        while waiting and fresh:
            step = waiting.pop()
            if step not in fresh:
                continue
            if not self.moves.can(state.run, step):
                fresh.discard(step)
                continue
            most, live = self.moves.weigh(state.run, state.live, step)
            if live > state.live:
                fresh.discard(step)
            elif most <= self.limit:
                fresh.discard(step)
                state = self.moves.make(state, step, live)
                others = [*self.moves.beside(step), *self.moves.freed[step]]
                fresh.update(others)
                waiting += others
        return state._replace(tight=frozenset(fresh))

    def _valley(self, start: State, goal: int) -> State | None:
        """The first state found with no more bytes than `start`, or the goal; None if none fits.

        States with the most moves go first, of these the ones that hold least.
        """
        seen = {start.run}
        waiting = [(0, 0, 0, start)]
        while waiting and self.left > 0:
            state = heapq.heappop(waiting)[-1]
            for step in state.ready:
                most, live = self.moves.weigh(state.run, state.live, step)
                if most > self.limit or state.run ^ (1 << step) in seen:
                    continue
                bare = self.moves.make(state, step, live)
                fresh = state.tight.union(self.moves.beside(step), self.moves.freed[step])
                after = self._settled(bare, fresh)
                known = after.run in seen
                seen |= {bare.run, after.run}
                if known:
                    continue
                self.left -= 1 + len(after.ready) // _FEW
                if after.live <= start.live or after.run == goal:
                    return after
                moved = (after.run ^ start.run).bit_count()
                heapq.heappush(waiting, (-moved, after.live, self.left, after))
        return None

    def _lowest(self, start: State, found: State) -> State:
        """A state of least bytes between two, with the moves to it."""
        graph = self.moves.graph
        low, high = sorted((start.run, found.run), key=int.bit_count)
        live, run = least_live(graph, mask(low, graph.count), mask(high, graph.count))
        if live >= found.live:
            return found
        changed = bits(np.flatnonzero(run).tolist()) ^ start.run
        state = start._replace(path=None)
        for step in steps(found.path):
            if changed >> step & 1:
                live = self.moves.weigh(state.run, state.live, step)[1]
                state = self.moves.make(state, step, live)
        return state


def outwards(backward: Moves, forward: Moves, run: Mask, limit: int, states: int) -> Found:
    """An order within the limit through the state after some steps.

    If there is none through that state, there may still be others.
    """
    head = Search(backward, limit, states).run(backward.start(run), backward.ends()[1])
    if head.path is None:
        return head
    tail = Search(forward, limit, states).run(forward.start(run), forward.ends()[1])
    path = None if tail.path is None else (*reversed(head.path), *tail.path)
    return Found(path, tail.exhausted)


def from_start(forward: Moves, limit: int, states: int) -> Found:
    """An order within the limit, or the proof that there is none."""
    return Search(forward, limit, states).run(*forward.ends())
