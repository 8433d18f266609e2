"""Learning rates by step, in closed form.

Source: torch.optim.lr_scheduler (PyTorch 2), whose formulas these are, computed there from step to
step; inverse square root: Vaswani et al. 2017 (arXiv:1706.03762), §5.3, with the peak as the
factor.

The learning rate by evaluations: lower where the first metric gets no better.

Source: torch.optim.lr_scheduler.ReduceLROnPlateau (PyTorch 2), with thresholds relative to the best
value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from gradtool.errors import UsageError, UserCodeError
from gradtool.plugins import is_number, parameters_of, place_of, require_call, user_code
from gradtool.text.words import suggest
from gradtool.training.sources import imported

NAME = "reduce-on-plateau"
GIVEN: Mapping[str, float] = MappingProxyType({
    "factor": 0.1, "patience": 10.0, "threshold": 1e-4, "cooldown": 0.0, "min-lr": 0.0, "eps": 1e-8,
})  # fmt: skip
Formula = Callable[[float, int, int, Mapping[str, float]], float]
CONSTANT = "constant"
# What a formula divides by, takes as a count or raises to a power.
_POSITIVE = frozenset({"every", "div", "final-div", "scale"})
_SHARES = frozenset({"rise"})
_BELOW_ONE = frozenset({"factor", "threshold"})
_COUNTS = frozenset({"patience", "cooldown"})


@dataclass(frozen=True)
class Plateau:
    """The `rate` of now, and what decides when it falls.

    `best` is the best value so far, None before the first; `bad` are evaluations since that were no
    better, `cooling` those that do not count yet.
    """

    rate: float
    best: float | None = None
    bad: int = 0
    cooling: int = 0

    def after(self, value: float, given: Mapping[str, float], *, higher: bool) -> Plateau:
        """The state after an evaluation whose first metric is `value`."""
        is_better = math.isfinite(value) and self._is_better(value, given["threshold"], higher)
        best = value if is_better else self.best
        bad = 0 if is_better else self.bad + 1
        cooling = self.cooling
        if cooling > 0:
            cooling, bad = cooling - 1, 0
        if bad <= given["patience"]:
            return replace(self, best=best, bad=bad, cooling=cooling)
        lower = max(self.rate * given["factor"], given["min-lr"])
        rate = lower if self.rate - lower > given["eps"] else self.rate
        return Plateau(rate, best, 0, int(given["cooldown"]))

    def _is_better(self, value: float, threshold: float, higher: bool) -> bool:  # noqa: FBT001
        if self.best is None:
            return True
        least = self.best * (1 + threshold if higher else 1 - threshold)
        return value > least if higher else value < least


@dataclass(frozen=True)
class Shape:
    """How a rate goes: `formula(peak, step, steps, given)`, and what it may be `given`.

    A shape that `ends` depends on the number of steps, the others go on for ever.  One that
    `watches` has a peak that falls by evaluations (`gradtool.training.plateau`).
    """

    formula: Formula
    given: Mapping[str, float] = field(default_factory=dict)
    ends: bool = True
    watches: bool = False


def _constant(peak: float, _step: int, _steps: int, _given: Mapping[str, float]) -> float:
    return peak


def _linear(peak: float, step: int, steps: int, given: Mapping[str, float]) -> float:
    """`LinearLR(1, end / peak, steps)`: a line from the peak to `end`."""
    return peak + (given["end"] - peak) * min(step, steps) / steps


def _cosine(peak: float, step: int, steps: int, given: Mapping[str, float]) -> float:
    """`CosineAnnealingLR(steps, end)`: half a wave from the peak to `end`."""
    end, done = given["end"], min(step, steps) / steps
    return end + (peak - end) * (1 + math.cos(math.pi * done)) / 2


def _polynomial(peak: float, step: int, steps: int, given: Mapping[str, float]) -> float:
    """`PolynomialLR(steps, power)`, down to `end` instead of 0."""
    left = 1 - min(step, steps) / steps
    return given["end"] + (peak - given["end"]) * math.pow(left, given["power"])


def _step(peak: float, step: int, _steps: int, given: Mapping[str, float]) -> float:
    """`StepLR(every, gamma)`: times `gamma` after each `every` steps."""
    return float(peak * given["gamma"] ** (step // max(int(given["every"]), 1)))


def _one_cycle(peak: float, step: int, steps: int, given: Mapping[str, float]) -> float:
    """`OneCycleLR(peak, steps, pct_start=rise, …)`: up for a share `rise`, then down, by cosines.

    It begins at `peak / div` and ends at that, divided by `final-div`.
    """
    first, top = peak / given["div"], given["rise"] * steps - 1
    last = steps - 1
    if step <= top:
        return _between(first, peak, step / top if top else 1.0)
    done = (step - top) / (last - top) if last > top else 1.0
    return _between(peak, first / given["final-div"], min(done, 1.0))


def _between(start: float, end: float, done: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * done))


def _inverse_sqrt(peak: float, step: int, _steps: int, given: Mapping[str, float]) -> float:
    """`peak · √(scale / (step + scale))`."""
    return peak * math.sqrt(given["scale"] / (step + given["scale"]))


SHAPES: Mapping[str, Shape] = {
    CONSTANT: Shape(_constant, ends=False),
    "linear": Shape(_linear, {"end": 0.0}),
    "cosine": Shape(_cosine, {"end": 0.0}),
    "polynomial": Shape(_polynomial, {"power": 1.0, "end": 0.0}),
    "step": Shape(_step, {"every": 1000.0, "gamma": 0.1}, ends=False),
    "one-cycle": Shape(_one_cycle, {"rise": 0.3, "div": 25.0, "final-div": 1e4}),
    "inverse-sqrt": Shape(_inverse_sqrt, {"scale": 1000.0}, ends=False),
    NAME: Shape(_constant, GIVEN, ends=False, watches=True),
}


@dataclass(frozen=True)
class Schedule:
    """The rate of each step: `warmup` steps up to `peak` on a line, then a shape.

    The shape begins when the warm-up has ended; `SequentialLR` of `LinearLR(1 / warmup, 1,
    warmup - 1)` and the shape is the same.
    """

    shape: str
    given: Mapping[str, float]
    peak: float
    warmup: int = 0
    steps: int = 0
    how: Shape = SHAPES[CONSTANT]

    def __call__(self, step: int, peak: float | None = None) -> float:
        """The learning rate of a step, the first one being 0, by another `peak` perhaps."""
        peak = self.peak if peak is None else peak
        if step < self.warmup:
            return peak * (step + 1) / self.warmup
        left = max(self.steps - self.warmup, 1)
        return self.how.formula(peak, step - self.warmup, left, self.given)

    @property
    def text(self) -> str:
        """The text that `schedule` makes the shape of again."""
        given = ",".join(f"{key}={value!r}" for key, value in self.given.items())
        return f"{self.shape}@{given}" if given else self.shape

    def begun(self) -> Plateau | None:
        """The state of a rate driven by evaluations."""
        return Plateau(self.peak) if self.how.watches else None

    @property
    def ends(self) -> bool:
        """Whether the rates depend on how many steps there are."""
        return self.how.ends


def schedule(text: str, peak: float, *, warmup: int = 0, steps: int = 0) -> Schedule:
    """The schedule that `NAME`, `NAME@key=value,…` or `module:function` means.

    A function takes the `step` behind the warm-up, and perhaps the number of `steps`; it returns
    the factor of the peak, as that of `LambdaLR` does.

    Raises:
        UsageError: there is no such shape, it has no such key, or a value is no number; a function
            raises, or returns no number from 0 on, for the first step or the last.
    """
    name, _, rest = text.partition("@")
    if ":" in name:
        found = Schedule(text, {}, _peak(peak), warmup, steps, _of_user(text))
        for step in dict.fromkeys(
            (warmup, max(steps - 1, warmup)) if steps or not found.ends else ()
        ):
            found(step)
        return found
    if name not in SHAPES:
        hint = suggest(name, SHAPES) or f"; there are {', '.join(SHAPES)}"
        raise UsageError(f"no schedule {name!r}{hint}")
    given = dict(SHAPES[name].given)
    for part in rest.split(",") if rest else ():
        key, _, value = part.replace("_", "-").partition("=")
        if key not in given:
            known = ", ".join(f"{k}={v:g}" for k, v in given.items()) or "nothing"
            raise UsageError(f"the schedule {name} has no {key!r}; it takes {known}")
        given[key] = _number(name, key, value)
    return Schedule(name, given, _peak(peak), warmup, steps, SHAPES[name])


def _peak(peak: float) -> float:
    if not 0 <= peak < math.inf:
        raise UsageError(f"a learning rate is a number from 0 on, not {peak}")
    return peak


def _of_user(text: str) -> Shape:
    """The shape of a function of the user's."""
    function, what = imported(text), f"--schedule {text}"
    takes = parameters_of(function)
    named = [name for name in ("step", "steps") if name in takes]
    require_call(what, function, *(() if named else (0,)), **dict.fromkeys(named, 0))

    def formula(peak: float, step: int, steps: int, _given: Mapping[str, float]) -> float:
        known = {"step": step, "steps": steps}
        with user_code(what, function):
            given = (step,) if not named else ()
            factor = function(*given, **{name: known[name] for name in named})
        if not is_number(factor) or not 0 <= factor < math.inf:
            raise UserCodeError(
                f"{what}: returned {factor!r:.60} for step {step}; a number from 0 on is needed"
                f"{place_of(function)}"
            )
        return peak * float(factor)

    return Shape(formula, ends="steps" in named)


def _number(name: str, key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    most = 1.0 if key in _SHARES | _BELOW_ONE else math.inf
    is_beyond = value == (1.0 if key in _BELOW_ONE else math.inf)
    is_odd = (key in _POSITIVE and not value) or (key in _COUNTS and value % 1)
    if not 0 <= value <= most or is_beyond or is_odd:
        raise UsageError(f"the schedule {name}: {key}={text!r} is no number that it can take")
    return value
