"""Local search on whole schedules: edits where they exceed the budget, until none does.

It knows more schedules than `Descent`: steps run in another order, values are computed again
several times between two reads, or earlier than they are needed.  Where no edit helps, the entries
above the budget weigh more and more, so that the search leaves a local minimum through what weighs
less.  It stops on counted work, never by the clock.

Source: the growing weights are those of the breakout method for constraint satisfaction (Morris
1993, The Breakout Method for Escaping from Local Minima, AAAI).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from gradtool.planning.flow import Integers
from gradtool.planning.search.cost_model import CostModel
from gradtool.planning.search.edit import Edit
from gradtool.planning.search.edits import Edits
from gradtool.planning.search.timeline import Timeline

_TRIALS = 4
_VAIN = 48
_PATIENCE = 60
_PATIENCE_KICKED = 3
_KICK = 3
_SLACK = Fraction(51, 50)
_EACH = 50
_GUESS = 25
_UNIT = 30


class Repair:
    """A search within `budget` bytes that may weigh `limit` entries, each schedule 50 more.

    An edit that is only estimated counts a tenth of the entries, and 25.  `lowest` has the
    least peak so far; extra work of `enough` ends the search.
    """

    def __init__(self, work: CostModel, budget: int, limit: int, enough: int = 0) -> None:
        self.work = work
        self.budget = budget
        self.left = limit
        self.enough = enough
        self.lowest = Timeline(work, range(len(work.reads)))
        self.edits = Edits(work, budget)
        self.weights: Integers = np.ones(len(work.reads), dtype=np.int64)
        self.unit = 1

    def weigh(self, places: Sequence[int]) -> Timeline:
        """Simulate a schedule, at the expense of the limit."""
        line = Timeline(self.work, places)
        self.left -= len(places) + _EACH
        self.lowest = min(self.lowest, line, key=lambda known: (known.peak, known.extra))
        return line

    def fit(
        self, line: Timeline, worth: Fraction | None = None, patience: int = _PATIENCE
    ) -> Timeline | None:
        """Edit until the budget holds, each time by what adds least work per excess gone.

        None if the limit is reached, the extra work is no longer below `worth`, or no edit helped
        for more than `patience` times.
        """
        self.weights[:] = 1
        self.unit = 1 + (line.peak >> _UNIT)
        while line.peak > self.budget:
            if self.left <= 0 or (worth is not None and line.extra >= worth):
                return None
            better = self._edited(line)
            if better is not None:
                line = better
                continue
            if not patience:
                return None
            patience -= 1
            over = np.flatnonzero(line.profile > self.budget)
            self.weights[sorted({line.places[e] for e in over.tolist()})] += 1
        return line

    def _over(self, profile: Integers, weights: Integers) -> Integers:
        """Weighted units above the budget, entry by entry."""
        over: Integers = -(-np.maximum(profile - self.budget, 0) // self.unit) * weights
        return over

    def _excess(self, line: Timeline) -> int:
        return int(self._over(line.profile, self.weights[line.places]).sum())

    def _edited(self, line: Timeline) -> Timeline | None:
        """The schedule after the best of the edits tried at the worst entry."""
        excess = self._excess(line)
        best: tuple[tuple[float, int], Timeline] | None = None
        for tried, edit in enumerate(self._ranked(line, excess)):
            if self.left <= 0 or tried >= (_VAIN if best is None else _TRIALS):
                break
            trial = self.weigh(edit.applied(line.places))
            gain = excess - self._excess(trial)
            if gain > 0:
                price = _price(trial.extra - line.extra, gain)
                if best is None or price < best[0]:
                    best = price, trial
        return None if best is None else best[1]

    def _ranked(self, line: Timeline, excess: int) -> list[Edit]:
        """The edits that seem to lower the excess, the cheapest first."""
        weights = self.weights[line.places]
        peak = int(self._over(line.profile, weights).argmax())
        found: dict[Edit, tuple[float, int]] = {}
        for edit, cost, profile in self.edits.around(line, peak):
            gain = excess - int(self._over(profile, weights).sum())
            self.left -= len(profile) // 10 + _GUESS
            if gain > 0:
                found.setdefault(edit, _price(cost, gain))
            if self.left <= 0:
                break
        return sorted(found, key=lambda edit: (found[edit], edit))

    def trim(self, line: Timeline) -> Timeline:
        """Run no longer again what the budget has room to keep, the dearest first."""
        costs = self.work.costs
        while True:
            for entry in sorted(line.repeats(), key=lambda e: -costs[line.places[e]]):
                if self.is_done(line):
                    return line
                trial = self.weigh(Edit((entry,), entry).applied(line.places))
                if trial.peak <= self.budget and trial.extra < line.extra:
                    line = trial
                    break
            else:
                return line

    def kick(self, line: Timeline, seed: int) -> Timeline:
        """Leave out some repeats at random, repair, keep what costs no more, until the limit."""
        random, best = np.random.default_rng(seed), line
        while not self.is_done(best):
            repeats = line.repeats()
            start, count = int(random.random() * len(repeats)), 1 + int(random.random() * _KICK)
            gone = tuple(repeats[start : start + count])
            kicked = self.weigh(Edit(gone, 0).applied(line.places))
            trial = self.fit(kicked, line.extra * _SLACK, _PATIENCE_KICKED)
            if trial is not None:
                trial = self.trim(trial)
                if trial.extra <= line.extra:
                    line = trial
                if trial.extra < best.extra:
                    best = trial
        return best

    def is_done(self, line: Timeline) -> bool:
        """Whether the limit is reached or nothing better exists."""
        return self.left <= 0 or line.extra <= self.enough


def _price(cost: int, gain: int) -> tuple[float, int]:
    """Work per excess that goes; where work goes too, the more of both the better."""
    return cost / gain if cost > 0 else float(cost * gain), -gain
