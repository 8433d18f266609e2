"""The learning rate range test: losses of steps whose rate rises until they diverge.

Source: the range test of Smith, "Cyclical Learning Rates for Training Neural Networks"
(arXiv:1506.01186); smoothing, end and suggestions are those of fastai's `lr_find`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gradtool.training.callbacks import Watcher
from gradtool.training.schedules import Schedule, Shape

STEPS = 100
LEAST, MOST = 1e-7, 10.0  # rates
SMOOTH = 0.98  # of the mean of losses in the next one
BEYOND = 4.0  # times the least smoothed loss: it diverges
TENTH = 10.0
SHARE = 10  # into so many parts the steps are cut to judge them


def rate_of(step: int, steps: int) -> float:
    """The rate of a step, the first one being 0: from `LEAST` to `MOST` by equal factors."""
    return float(LEAST * math.pow(MOST / LEAST, step / max(steps - 1, 1)))


def rising(steps: int) -> Schedule:
    """The schedule of the sweep."""

    def formula(_peak: float, step: int, _steps: int, _given: Mapping[str, float]) -> float:
        return rate_of(step, steps)

    return Schedule("sweep", {}, MOST, 0, steps, Shape(formula))


@dataclass(frozen=True)
class RateSweep:
    """Losses of steps of rising rates.

    Attributes:
        rates: the learning rate of each step.
        losses: the loss of each step, before it was taken.
        smooth: their exponential means, as if there had been such losses before the first.
        diverged: whether the losses ended the sweep.

    Example:
        with gt.Trainer("samples/cnn.onnx", batch=4) as trainer:
            trainer.find_lr("samples/cnn.npz").steepest
    """

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    smooth: tuple[float, ...]
    diverged: bool

    @property
    def least(self) -> float | None:
        """A tenth of the rate of the least smoothed loss; None where no loss falls."""
        at = self._lowest
        return None if at is None else self.rates[at] / TENTH

    @property
    def steepest(self) -> float | None:
        """The rate at which the smoothed loss falls fastest by the logarithm of the rate.

        None where no loss falls.
        """
        at, span = self._lowest, self._span
        if at is None:
            return None
        falls = {n: self.smooth[n + span] - self.smooth[n] for n in range(span, at - span + 1)}
        return self.rates[min(falls, key=lambda n: falls[n]) + span // 2]

    @property
    def _span(self) -> int:
        """Steps whose losses are judged together: single ones are noisy."""
        return max(len(self.rates) // SHARE, 1)

    @property
    def _lowest(self) -> int | None:
        """The step of the least smoothed loss; None where it is one of the first."""
        judged = range(self._span, len(self.smooth))
        at = min(judged, key=lambda n: self.smooth[n], default=0)
        return at if at >= 2 * self._span else None


class Sweeping(Watcher):
    """Hears of the steps of a sweep, and ends it where losses diverge."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.losses: list[float] = []
        self.smooth: list[float] = []
        self._mean = 0.0

    def stepped(self, step: int, epoch: int, loss: float, rate: float, planned: int) -> None:
        del epoch, planned
        self._mean += (1 - SMOOTH) * (loss - self._mean)
        self.rates.append(rate)
        self.losses.append(loss)
        self.smooth.append(self._mean / (1 - SMOOTH**step))

    def stops(self) -> bool:
        last = self.smooth[-1]
        return not math.isfinite(last) or last > BEYOND * min(self.smooth) > 0

    def found(self, *, diverged: bool) -> RateSweep:
        """The steps whose loss is a number."""
        told = [each for each in zip(self.rates, self.losses, self.smooth, strict=True)
                if math.isfinite(each[2])]  # fmt: skip
        rates, losses, smooth = zip(*told, strict=True) if told else ((), (), ())
        return RateSweep(rates, losses, smooth, diverged)
