"""Progress of a training on the command line: lines as it goes on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gradtool.exec.process_memory import resident
from gradtool.reports import live
from gradtool.training.callbacks import Begun, Watcher
from gradtool.training.train_log import LIVE, Now, clauses, fit_table, numbers

if TYPE_CHECKING:
    from gradtool.commands.output import Reporter
    from gradtool.training.fit import Fit

PLAIN = 10  # lines about steps, where nobody looks
WEIGHT = 0.1  # of the latest step in the time of one; the first one is planned as well


class Follower(Watcher):
    """Remarks for the user of a reporter."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._line = live.Line(reporter.color, quiet=reporter.quiet)
        self._begun = Begun(None, 0, None, None, 1)
        self._every = 1
        self._seconds = 0.0
        self._last = 0.0
        self._before = 0
        self._steps = 0

    def begun(self, begun: Begun) -> None:
        self._begun = begun
        spread = begun.steps or (begun.per_epoch or 1) * PLAIN
        self._every = max(spread // PLAIN, 1)
        self._before, self._last = _anonymous(), time.perf_counter()

    def tokenizes(self, source: str, texts: int, tokens: int) -> None:
        if self._line.is_due():
            self._line.show([source, f"{texts:,} texts", f"{tokens:,} tokens"])

    def tries(self, micro_batches: int, examples: int) -> None:
        self._line.show([f"planning {micro_batches} × {examples} examples"])

    def fitted(self, fit: Fit) -> None:
        if not self._reporter.quiet:
            self._reporter.explain(fit_table(fit.memory, fit.candidates, fit.chosen))

    def stepped(self, step: int, epoch: int, loss: float, rate: float, planned: int) -> None:
        """Show a finished step when a line is due."""
        now = time.perf_counter()
        latest, self._last = now - self._last, now
        self._seconds += (WEIGHT if self._steps > 1 else 1.0) * (latest - self._seconds)
        self._steps += 1
        is_plain = not self._line.shows and (step % self._every == 0 or step == self._begun.steps)
        if not is_plain and not self._line.is_due():
            return
        held = _anonymous()
        measured = max(held - self._before, 0) if held else None
        steps = self._begun.steps
        left = None if steps is None or self._steps == 1 else (steps - step) * self._seconds
        told = Now(
            step, steps, epoch, loss, rate, self._seconds, left, planned, measured,
            self._begun.batch, self._begun.tokens,
        )  # fmt: skip
        if is_plain:
            self._reporter.say("  ".join(clauses(told)))
        else:
            self._line.show(clauses(told, LIVE), None if steps is None else step / steps)

    def skipped(self, step: int, scale: float) -> None:
        self.said(f"step {step}: skipped: a gradient is infinite at a loss scale of {scale:g}")

    def evaluated(self, step: int, found: Mapping[str, float], *, best: bool) -> None:
        self.said(f"step {step}: evaluated: {numbers(found)}{'  (the best)' if best else ''}")
        self._last = time.perf_counter()

    def saved(self, step: int, path: Path) -> None:
        if self._reporter.verbose:
            self.said(f"step {step}: wrote {path}")
        self._last = time.perf_counter()

    def said(self, line: str) -> None:
        self._reporter.say(line)

    def ended(self) -> None:
        live.clear()


def _anonymous() -> int:
    """The resident anonymous bytes of this process; 0 where nobody tells."""
    found = resident()
    return 0 if found is None else found.anonymous
