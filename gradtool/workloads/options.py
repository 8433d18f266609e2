"""What can be asked for, as records: commands make flags of their fields, configurations keys.

Nothing heavy is imported before something is planned.
"""
# ruff: noqa: RUF009 - `option` makes a field

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from gradtool.errors import UsageError
from gradtool.graph.limits import DEFAULT
from gradtool.graph.optimizers import OPTIMIZERS, UPDATING
from gradtool.text.words import suggest
from gradtool.workloads.names import PLANS, SEARCHED, STRATEGIES, current

if TYPE_CHECKING:
    from fractions import Fraction

    from gradtool.workloads.budgets import prices
    from gradtool.workloads.budgets.search import Search
    from gradtool.workloads.plan_files import PlanFile
    from gradtool.workloads.plans import Strategy
    from gradtool.workloads.workload import Workload

Kind = Literal[
    "flag", "globs", "switch", "text", "texts", "choice", "plan", "whole", "number", "seconds",
    "bytes", "path",
]  # fmt: skip


@dataclass(frozen=True)
class Option:
    """A field that people give: how they write it, and what it does.

    `least` and `most` bound a number, and are among what it may be; `above` is not.  `texts` may be
    given several times, and so may `globs`, a flag that may carry one: `--flag=GLOB`; a `switch`
    has a flag for yes and one for no; `shown` is the default as people read it, where that is not
    its value.
    """

    name: str
    kind: Kind
    default: Any
    help: str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    least: int | None = None
    above: float | None = None
    most: int | None = None
    shown: str = ""

    @property
    def key(self) -> str:
        """The key of a configuration."""
        return self.name.replace("_", "-")

    @property
    def flag(self) -> str:
        """The flag of a command; what is on by default is turned off."""
        if self.kind == "switch":
            return f"--{self.key}/--no-{self.key}"
        return f"--no-{self.key}" if self.default is True else f"--{self.key}"

    def require_bounds(self, value: Any) -> None:
        """Refuse a number that is out of bounds, and a word that is no choice.

        Raises:
            UsageError: naming the option.
        """
        if self.choices and value not in self.choices:
            hint = suggest(str(value), self.choices)
            raise UsageError(f"no {self.name} {value!r}{hint}; there are {', '.join(self.choices)}")
        if isinstance(value, int | float) and not isinstance(value, bool):
            low, high = self.least, self.most
            if value != value or (low is not None and value < low):  # noqa: PLR0124 - a NaN
                raise UsageError(f"{self.name} is {value}, and has to be at least {low or 0}")
            if high is not None and value > high:
                raise UsageError(f"{self.name} is {value}, and may be {high} at most")


def option(kind: Kind, default: Any, help: str, **how: Any) -> Any:  # noqa: A002 - as click has it
    return field(default=default, metadata={"kind": kind, "help": help, **how})


def options_of(record: type[Any]) -> dict[str, Option]:
    """The options of a record, by name."""
    return {
        each.name: Option(each.name, default=each.default, **each.metadata)
        for each in fields(record)
        if each.default is not MISSING and each.metadata
    }


@dataclass(frozen=True)
class GradOptions:
    """What a gradient is of, and by which values; see `gradtool.grad`."""

    loss: Sequence[str] = option(
        "texts", (), "The loss: a value, or ce, mse, l1, smooth-l1, huber, bce, bce-logits, nll, "
        "kl, mean, sum, or pkg.mod:function; several are added.  Of classes, settings are axis, "
        "ignore, smoothing, weight, shift and soft, as in ce:logits@ignore=0,shift=1.",
        metavar="[WEIGHT*]NAME|KIND[:OUTPUT][@KEY=X,...]", shown="auto")  # fmt: skip
    labels: Sequence[str] = option(
        "texts", (), "The name of the input that holds the labels.", metavar="[OUTPUT=]NAME",
        shown="labels")  # fmt: skip
    wrt: Sequence[str] = option(
        "texts", (), "Differentiate by these values; default: every parameter.",
        metavar="GLOB|@FILE")  # fmt: skip
    no_grad: Sequence[str] = option(
        "texts", (), "Let no gradient flow into these values.", metavar="GLOB|@FILE"
    )
    input_grad: Sequence[str] = option(
        "texts", (), "Differentiate by these float inputs as well.", metavar="GLOB|@FILE"
    )
    head_grads: bool = option("flag", False, "No loss: an input per output carries its gradient.")
    accumulate: str = option(
        "choice", "chain", "Add gradients as they appear, or all at once.",
        choices=("chain", "sum"))  # fmt: skip
    train_mode: bool | str | Sequence[str] = option(
        "globs", False, "Turn BatchNormalization and Dropout to training, but norms whose "
        "parameters --wrt or --no-grad freezes; of norms exactly those of these names.",
        metavar="[=GLOB]")  # fmt: skip
    ste: bool = option(
        "flag", False, "Let gradients straight through quantisation, as if it did not round."
    )
    grad_buffers: bool = option(
        "flag", False, "Add each gradient to an input of its shape (micro-batches)."
    )
    lora: int | None = option(
        "whole", None, "Train adapters of this rank beside weights of MatMul, Gemm and Conv, and "
        "what --wrt names; the weights stay.", least=1, metavar="RANK")  # fmt: skip
    lora_target: Sequence[str] = option(
        "texts", (), "The weights that have an adapter; default: every one that can.",
        metavar="GLOB|@FILE")  # fmt: skip
    lora_alpha: float | None = option(
        "number", None, "Scale adapters by this over their rank.", above=0, metavar="ALPHA",
        shown="RANK")  # fmt: skip
    fuse_attention: bool = option(
        "flag", True, "Leave attention as it is written: backward keeps the probabilities that "
        "plain operators compute.")  # fmt: skip
    only_loss: bool = option(
        "flag", False, "Return the loss and gradients, not what MODEL returns: what only the loss "
        "reads dies there.")  # fmt: skip
    optimizer_option: Sequence[str] = option(
        "texts", (), "Set a number or a switch of the optimizer, as in momentum=0.9 or nesterov.",
        metavar="NAME[=VALUE]")  # fmt: skip
    clip_norm: float | None = option(
        "number", None, "Before the update, scale all gradients together to at most this norm "
        "(an input, clip_norm).", above=0, metavar="NUMBER")  # fmt: skip
    clip_value: float | None = option(
        "number", None, "Before the update, and before --clip-norm, clip each gradient's elements "
        "(an input, clip_value).", above=0, metavar="NUMBER")  # fmt: skip
    no_decay: Sequence[str] = option(
        "texts", (), "Update these parameters without weight decay.", metavar="GLOB"
    )
    lr_scale: Sequence[str] = option(
        "texts", (), "Multiply the learning rate of these parameters; the last that matches "
        "counts.", metavar="GLOB=FACTOR")  # fmt: skip
    sparse: bool = option(
        "flag", False, "Update only the rows of embedding tables that a step reads (sgd, adagrad, "
        "and adam as SparseAdam does); a whole gradient of a table is not made.")  # fmt: skip


@dataclass(frozen=True)
class RecomputeOptions:
    """One of a strategy, checkpoints, a budget, a slowdown and a plan in a file.

    A budget and a slowdown may name one of the strategies `SEARCHED` as well.  `max_slowdown` is a
    share of one step, or text as in `20%`; `cost` is `flops`, `time` or a file of times.
    """

    strategy: str | None = option(
        "plan", None, "What to compute again; reorder: only the order of the steps changes; "
        "min-cut, optimal: what saves most for the work, by a quick or a thorough search.",
        choices=STRATEGIES)  # fmt: skip
    checkpoints: Sequence[str] | None = option(
        "texts", None, "Keep these values only, and compute again what lies between them.",
        metavar="NAMES|@FILE")  # fmt: skip
    budget: str | int | None = option(
        "text", None, "Fit into this much memory, all that a step needs counted: 8GiB, 60% of "
        "what keeping everything takes, or as little as can be reached.",
        metavar="SIZE|%|min")  # fmt: skip
    max_slowdown: str | float | Fraction | None = option(
        "text", None, "Take as little memory as this much extra work allows, as in 20%.",
        metavar="%")  # fmt: skip
    plan: str | os.PathLike[str] | PlanFile | None = option(
        "text", None, "Follow the plan in a file.", metavar="FILE.json"
    )
    optimizer: str = option(
        "choice", "none", "Update the parameters in place of returning their gradients, as grad "
        f"does ({', '.join(UPDATING)}); of a model that holds gradients, count this optimizer's "
        "state as well.", choices=OPTIMIZERS, metavar="NAME")  # fmt: skip
    cost: str = option(
        "text", "flops", "What extra work is: FLOPs, time measured now on the CPU, or the times "
        "in a file of gradtool run --profile.", metavar="flops|time|FILE")  # fmt: skip
    seed: int = option("whole", 0, "The seed of the search.", least=0)
    time_limit: float | None = option(
        "seconds", None, "Search harder, until the command has taken this long: reading and "
        "writing count, and leave a tenth of it at least.", metavar="30s")  # fmt: skip
    prove: bool = option(
        "flag", False, "Prove how little work any plan could compute again, and look for a plan of "
        "that; for two minutes at most, or until --time-limit.")  # fmt: skip

    def plans(self) -> Strategy:
        """How to plan a training graph.

        Raises:
            UsageError: nothing is asked for, or two things are; a name, a size, a percentage or a
                file cannot be used.
        """
        self._check()
        if self.plan is not None:
            from gradtool.workloads import plan_files

            given = self.plan
            file = given if isinstance(given, plan_files.PlanFile) else plan_files.load(given)
            return partial(plan_files.planned_by, file=file)
        from gradtool.workloads import strategies

        if self.checkpoints is not None:
            return partial(strategies.checkpoints, names=self.checkpoints)
        name = current(self.strategy or "optimal")
        return self._searching(name) if name in SEARCHED else strategies.STRATEGIES[name]

    def _searching(self, name: str) -> Strategy:
        from gradtool.workloads.budgets.limits import Budget
        from gradtool.workloads.budgets.search import at_most, within

        search = self.search()
        budget = Budget.of("min" if self.budget is None else self.budget, self.optimizer)
        if self.budget is not None:
            return lambda work: within(work, budget, search(work), name)
        share = self._share()
        return lambda work: at_most(work, share, search(work), name=name, optimizer=self.optimizer)

    def search(self) -> _Searching:
        """How far to search in a training graph, which may have to be timed first.

        Raises:
            UsageError: a file of times cannot be read.
        """
        from gradtool.workloads.budgets import prices

        return _Searching(self, prices.named(self.cost))

    def _share(self) -> Fraction | None:
        from fractions import Fraction

        from gradtool.workloads.budgets.limits import parse_percent

        given = self.max_slowdown
        if given is None or isinstance(given, str):
            return None if given is None else parse_percent(given)
        if not 0 <= given < 1e9:
            raise UsageError(f"max_slowdown {given} is no share of a step: write 0.2, or '20%'")
        return Fraction(given)

    def _check(self) -> None:
        goals = {
            "checkpoints": self.checkpoints is not None,
            "a budget": self.budget is not None,
            "a slowdown": self.max_slowdown is not None,
            "a plan": self.plan is not None,
        }
        given = [name for name, is_given in goals.items() if is_given]
        if self.strategy is not None:
            if current(self.strategy) not in PLANS:
                hint = suggest(self.strategy, PLANS)
                raise UsageError(
                    f"no strategy {self.strategy!r}{hint}; there are {', '.join(PLANS)}"
                )
            if not (self.strategy in SEARCHED and given in (["a budget"], ["a slowdown"])):
                given.insert(0, f"the strategy {self.strategy}")
        if not given:
            raise UsageError(
                "say what to compute again: a strategy, checkpoints, a budget, a slowdown or a plan"
            )
        if len(given) > 1:
            both = f"{given[0]} and {given[1]} do not go together"
            raise UsageError(f"say what to compute again by one thing: {both}")
        if given[0] in ("a budget", "a slowdown") or self.strategy in SEARCHED:
            return
        for name, why in _SEARCHING.items():
            if getattr(self, name) != getattr(RecomputeOptions, name):
                raise UsageError(f"{name} changes nothing of {given[0]}: {why}")


_SEARCH = "it is of a budget, a slowdown, min-cut and optimal"
_SEARCHING: Mapping[str, str] = {
    "cost": _SEARCH, "seed": _SEARCH, "time_limit": _SEARCH, "prove": _SEARCH,
    "optimizer": "the graph holds its gradients",
}  # fmt: skip


@dataclass(frozen=True)
class KernelOptions:
    """The kernels that a step is planned for; in Python one argument, of `KERNELS`."""

    kernels: str = option(
        "choice", "numpy", "What is to compute, and is planned for: numpy, or the native library "
        "what it can, on the CPU; CuPy on CUDA.", choices=("numpy", "native", "cupy"))  # fmt: skip
    exact_conv: bool = option(
        "flag", False, "Convolutions of native kernels are sums of products: none is Winograd's."
    )


@dataclass(frozen=True)
class RunOptions:
    """What a step is run on, how often, and what is watched; see `gradtool.run`."""

    inputs: str = option(
        "path", "random", "Where the inputs are: a .npz file, a folder of .npy files, or random.",
        metavar="NPZ|DIR|random")  # fmt: skip
    seed: int = option("whole", 0, "The seed of random inputs.", least=0)
    device: str = option("text", "auto", "Where to run.", metavar="auto|cpu|cuda[:N]")
    engine: str = option(
        "choice", "arena", "Our executor, or stock onnxruntime.", choices=("arena", "ort")
    )
    repeat: int = option(
        "whole", 1, "Steps to run; the time is their median.  --profile, --trace and --html "
        "time at least 5, once warm.", least=1, metavar="N")  # fmt: skip
    measure: bool = option(
        "flag", False, "Measure the peak against the plan, in onnxruntime also what is allocated "
        "at once.")  # fmt: skip
    check_nan: bool = option("flag", False, "Name the first node whose result has a NaN.")
    check_arena: bool = option(
        "flag", False, "Overwrite every buffer when it dies; gradients must keep their bits."
    )
    fetch: Sequence[str] = option(
        "texts", (), "Compute these values only, interior ones too; no gradients if none are among "
        "them.", metavar="GLOB|@FILE")  # fmt: skip
    max_turns: int | None = option(
        "whole", None, "Stop a step after N turns of its loops.", least=1, metavar="N",
        shown=str(DEFAULT.turns))  # fmt: skip
    max_dynamic: int | None = option(
        "bytes", None, "Stop before values whose sizes depend on data take more.", metavar="SIZE",
        shown="512MiB, or what the step is planned to take")  # fmt: skip


@dataclass(frozen=True)
class _Searching:
    """The search for a training graph, at the prices that its steps have."""

    asked: RecomputeOptions
    prices: prices.Named

    def __call__(self, work: Workload) -> Search:
        from gradtool.workloads.budgets.search import CUTS, Search

        asked, effort = self.asked, CUTS if self.asked.strategy == "min-cut" else 1.0
        return Search(effort, asked.seed, asked.time_limit, self.prices(work), asked.prove)
