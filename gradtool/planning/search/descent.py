"""Local search on what is dropped: first down to a budget, then to the least extra work within it.

Every trial is a whole schedule weighed by the simulator, so whatever the program does (views, work
in place, several outputs) is counted.  The search stops after a number of simulated steps, never by
the clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from gradtool.planning.search.cost_model import CostModel, Drops, Weighed
from gradtool.planning.search.gaps import Gap, Lives, absent, idle, with_drops, without_drop

_TRIALS = 16
_TRIALS_KICKED = 8
_KICK = 12
MANY = 400
_EACH = 50
_SAME = 10**7
_SLACK = Fraction(11, 10)


@dataclass(frozen=True)
class Found:
    """A choice of drops and the schedule that it leads to."""

    drops: Drops
    weighed: Weighed

    @property
    def extra(self) -> int:
        """The cost of what runs again."""
        return self.weighed.extra


class Descent:
    """A search within `budget` bytes that may simulate `limit` steps, each schedule 50 more.

    It ends early at extra work of `enough`, below which nothing is to be found, but for the
    ten-millionth part of a step that the arithmetic of the bound may lose.  `lowest` is what had
    the least peak so far; `is_thorough` says whether the limit allows for many trials.
    """

    def __init__(self, work: CostModel, budget: int, limit: int, enough: int = 0) -> None:
        self.work = work
        self.budget = budget
        self.left = limit
        self.is_thorough = limit >= MANY * len(work.reads)
        self.enough = enough
        self.lowest: Found | None = None

    def weigh(self, drops: Drops) -> Found:
        """Simulate one choice of drops, at the expense of the limit."""
        weighed = self.work.weigh(drops)
        self.left -= len(weighed.places) + _EACH
        found = Found(drops, weighed)
        if self.lowest is None or weighed.peak < self.lowest.weighed.peak:
            self.lowest = found
        return found

    @property
    def least_extra(self) -> int:
        """The extra work at which to end: `enough`, and what arithmetic may have lost of it."""
        return self.enough + self.work.total // _SAME

    def is_done(self, found: Found) -> bool:
        """Whether the limit is reached or nothing better exists."""
        return self.left <= 0 or found.extra <= self.least_extra

    def fit(
        self, found: Found, worth: Fraction | None = None, trials: int = _TRIALS
    ) -> Found | None:
        """Drop more until the budget holds, each time what costs least per byte of excess gone.

        Of what could be dropped over the peak, `trials` are tried, and more while none of them
        helps.  None if that leads nowhere, the limit is reached, or the extra work is no longer
        below `worth`.
        """
        while (excess := self._excess(found)) > 0:
            if self.left <= 0 or (worth is not None and found.extra >= worth):
                return None
            best: tuple[Fraction, int, Found] | None = None
            for tried, more in enumerate(self._over_peak(found)):
                if (tried >= trials and best is not None) or self.left <= 0:
                    break
                trial = self.weigh(with_drops(found.drops, more))
                gain = excess - self._excess(trial)
                price = Fraction(trial.extra - found.extra, max(gain, 1))
                if gain > 0 and (best is None or (price, -gain) < best[:2]):
                    best = price, -gain, trial
            if best is None:
                return None
            found = best[2]
        return found

    def _excess(self, found: Found) -> int:
        """Bytes above the budget, summed over the entries of the schedule."""
        return sum(live - self.budget for live in found.weighed.profile if live > self.budget)

    def _over_peak(self, found: Found) -> Iterator[list[tuple[int, int]]]:
        """Drops that empty gaps over the peak, those of little work per byte first.

        Each is tried alone, and with what would stay alive just to run its step again.
        """
        profile, size = found.weighed.profile, self.work.bytes
        peak = profile.index(max(profile))
        lives = Lives(self.work, found.weighed)
        ranked = []
        for gap in idle(self.work, found.weighed):
            is_new = gap.root not in found.drops.get(gap.place, ())
            if gap.last < peak < gap.next and size[gap.root] and is_new:
                more = lives.with_inputs(gap)
                for drops in (more[:1], more) if len(more) > 1 else (more,):
                    work = sum(self.work.costs[self.work.maker[r]] for r, _ in drops)
                    ranked.append((Fraction(work, size[gap.root]), gap.last, gap.root, drops))
        for *_, drops in sorted(ranked):
            yield drops

    def trim(self, found: Found) -> Found:
        """Keep again what the budget has room for, each time what saves most."""
        while not self.is_done(found):
            best = found
            for gap in self._fitting(found):
                trial = self.weigh(without_drop(found.drops, gap.root, gap.place))
                if trial.weighed.peak <= self.budget and trial.extra < best.extra:
                    best = trial
                if self.left <= 0:
                    break
            if best is found:
                break
            found = best
        return found

    def _fitting(self, found: Found) -> list[Gap]:
        """Gaps with room for the storage absent from them, those of the dearest steps first."""
        profile, size = found.weighed.profile, self.work.bytes
        costs, maker = self.work.costs, self.work.maker
        gaps = [
            g
            for g in absent(self.work, found.weighed, found.drops)
            if max(profile[g.last + 1 : g.next], default=0) + size[g.root] <= self.budget
        ]
        return sorted(gaps, key=lambda g: (-costs[maker[g.root]], g.root, g.place))

    def kick(self, found: Found, seed: int) -> Found:
        """Disturb a schedule at random, descend, keep what is no worse, until the limit."""
        random, best = np.random.default_rng(seed), found
        while not self.is_done(best):
            kicked = self.weigh(self._kicked(found, random))
            trial = self.fit(kicked, best.extra * _SLACK, _TRIALS_KICKED)
            if trial is not None:
                trial = self.trim(trial)
                if trial.extra <= found.extra:
                    found = trial
                if trial.extra < best.extra:
                    best = trial
        return best

    def _kicked(self, found: Found, random: np.random.Generator) -> Drops:
        """Some neighbouring drops taken back, and some others made."""
        drops = found.drops
        taken = sorted(
            absent(self.work, found.weighed, drops), key=lambda g: (g.place, g.root, g.next)
        )
        start, count = int(random.random() * len(taken)), 1 + int(random.random() * _KICK)
        for gap in taken[start : start + count]:
            drops = without_drop(drops, gap.root, gap.place)
        made = list(idle(self.work, found.weighed))
        for _ in range(int(random.random() * (_KICK + 1)) if made else 0):
            gap = made[int(random.random() * len(made))]
            drops = with_drops(drops, [(gap.root, gap.place)])
        return drops
