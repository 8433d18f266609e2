"""Steps are timed once the machine is warm."""

import time
from types import SimpleNamespace

from gradtool.exec.step_costs import LEAST, warm_seconds

COLD, SLOW = LEAST + 1, 0.05  # runs that are slow, and their seconds


class Cold:
    """Two steps, the first of which is slow at first."""

    device = SimpleNamespace(synchronize=lambda: None)

    def __init__(self):
        self.runs = 0
        self.calls = (self.first, lambda: None)

    def first(self):
        self.runs += 1
        time.sleep(SLOW if self.runs <= COLD else 0)

    def step(self):
        for call in self.calls:
            call()

    def rewind(self):
        pass


def test_the_first_steps_are_not_among_those_that_are_timed():
    seconds = warm_seconds(Cold(), 1)

    assert len(seconds) == 2
    assert max(seconds) < SLOW
