"""Options of training, as a record: the command makes its flags of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from gradtool.arguments import hold
from gradtool.errors import UsageError
from gradtool.graph.optimizers import UPDATING
from gradtool.text.units import parse_bytes
from gradtool.training.data_options import DataOptions
from gradtool.workloads.options import option, options_of, require

BATCH, TEXTS = 32, 8  # examples and texts, where neither the model nor anybody says how many


@dataclass(frozen=True)
class TrainOptions(DataOptions):
    """How to train; see `gradtool.Trainer`."""

    batch: int | None = option(
        "whole", None, "Examples of a step; the model's own number where it has one.  A file that "
        "is fixed at 1 is opened.", least=1, metavar="N",
        shown=f"{BATCH}, of texts {TEXTS}, or all where there are fewer", group="Data")  # fmt: skip
    epochs: int | None = option(
        "whole", None, "Go through the data so often.", least=1, metavar="N", shown="1",
        excludes="steps", group="Data")  # fmt: skip
    steps: int | None = option(
        "whole", None, "Take so many steps, through the data as often as it needs.", least=1,
        metavar="N", group="Data")  # fmt: skip
    shuffle: bool = option(
        "switch", True, "Take the examples in another order each epoch.", group="Data"
    )
    seed: int = option(
        "whole", 0, "The seed of the order, and of what the model draws.", least=0, metavar="N",
        group="Data")  # fmt: skip
    optimizer: str = option(
        "choice", "adamw", f"How to update: {', '.join(UPDATING)}.", choices=UPDATING,
        metavar="NAME", group="Optimizer")  # fmt: skip
    lr: float | None = option(
        "number", None, "The learning rate, at its highest.", least=0, metavar="RATE",
        shown="that of torch.optim", group="Learning rate")  # fmt: skip
    unfreeze: Sequence[str] = option(
        "texts", (), "Train these parameters from an epoch on, 2 or later; until then they are "
        "frozen, without gradient and state.", metavar="GLOB@EPOCH",
        excludes="shard shard_tables stages", why="has another graph from then on",
        group="What learns")  # fmt: skip
    schedule: str | None = option(
        "text", None, "How the learning rate goes: constant, linear, cosine, polynomial, "
        "step, one-cycle or inverse-sqrt, as in step@every=500,gamma=0.5; reduce-on-plateau by "
        "evaluations; or module:function, which returns the factor of a step.",
        metavar="NAME[@KEY=X,...]|PKG.MOD:F", shown="constant", group="Learning rate")  # fmt: skip
    warmup: int | None = option(
        "whole", None, "Steps in which the learning rate rises to its highest.", least=0,
        metavar="N", shown="0", group="Learning rate")  # fmt: skip
    loss_scale: str | float | None = option(
        "text", None, "Multiply the loss by this before backward, and divide gradients by it; "
        "dynamic: as high as they stay finite.  A step with an infinity is skipped.",
        metavar="N|dynamic", group="Optimizer")  # fmt: skip
    micro_batches: int = option(
        "whole", 1, "Compute a step in N parts, one after the other.", least=1, metavar="N",
        group="Plan")  # fmt: skip
    memory: int | None = option(
        "bytes", None, "Fit a step into this much memory: parameters, state, gradients, what a "
        "step computes and, from 16MiB on, batches that are read; the process needs its own 150 MB "
        "besides.  In as many parts and by the plan that are predicted to take the least time.",
        metavar="SIZE", excludes="plan micro_batches", why="chooses them",
        group="Plan")  # fmt: skip
    plan: str = option(
        "text", "keep", "What to compute again in backward: a strategy of gradtool recompute, or "
        "the plan in a file.", metavar="NAME|FILE.json", group="Plan")  # fmt: skip
    every: int | None = option(
        "whole", None, "Evaluate after every N steps.", least=1, metavar="N",
        shown="after each epoch", group="Evaluation")  # fmt: skip
    metric: Sequence[str] = option(
        "texts", (), "What to evaluate: loss, accuracy, top-5, f1, f1-micro, auc, "
        "average-precision, iou, perplexity, mae, rmse, r2 or module:function; the first one tells "
        "which weights are best.",
        metavar="NAME[:OUTPUT[:LABELS]]", shown="loss", group="Evaluation")  # fmt: skip
    patience: int | None = option(
        "whole", None, "Stop after N evaluations in a row that were not the best.", least=1,
        metavar="N", group="Evaluation")  # fmt: skip
    ema: float | None = option(
        "number", None, "Keep an exponential mean of the parameters, and write it as well.",
        least=0, most=1, metavar="DECAY", group="Optimizer")  # fmt: skip
    checkpoint_every: int | None = option(
        "whole", None, "Write a checkpoint after every N steps.", least=1, metavar="N",
        shown="after each epoch; one precedes each evaluation", group="Results")  # fmt: skip
    log: Sequence[str] = option(
        "texts", (), "Tell a package of losses, rates and evaluations: tensorboard[:DIR], "
        "wandb[:PROJECT] or mlflow[:EXPERIMENT].", metavar="NAME[:WHERE]",
        group="Results")  # fmt: skip
    callback: Sequence[str] = option(
        "texts", (), "Tell a gradtool.Watcher of yours of each step; it may stop training.",
        metavar="PKG.MOD:CLASS", group="Results")  # fmt: skip
    keep: int = option("whole", 2, "Keep the N newest checkpoints, and the best.", least=1,
                       metavar="N", group="Results")  # fmt: skip
    shard: Literal["none", "optimizer", "gradients"] = option(
        "choice",
        "none",
        "What ranks have parts of in place of all: nothing, the optimizer's "
        "state, or that and the sums of gradients.",
        choices=("none", "optimizer", "gradients"),
        group="Ranks and stages",
    )
    shard_tables: Sequence[str] = option(
        "texts", (), "Ranks have blocks of the rows of embedding tables that match, which are "
        "updated by --sparse.", metavar="GLOB", group="Ranks and stages")  # fmt: skip
    staleness: int = option(
        "whole", 0, "With --shard-tables: rows of other ranks may be so many steps old, and "
        "gradients of rows are added up in no order.", least=0, metavar="K",
        needs="shard_tables plan=keep", group="Ranks and stages")  # fmt: skip
    stages: int = option(
        "whole", 1, "Cut the model into N stages, each of which a rank has: ranks are N, or a "
        "multiple of it.", least=1, metavar="N", excludes="memory shard_tables",
        why="cuts the model", group="Ranks and stages")  # fmt: skip
    sync_batchnorm: bool = option(
        "flag", False, "BatchNormalization takes the statistics of the examples of all ranks.",
        group="Ranks and stages")  # fmt: skip
    device: str = option(
        "text", "auto", "Where to train.", metavar="auto|cpu|cuda[:N]", group="Device"
    )
    kernels: Literal["auto", "numpy", "native"] = option(
        "choice", "auto", "What computes on the CPU: numpy, or the native library what it can; "
        "auto takes the library where it is there, its convolutions as by --exact-conv.",
        choices=("auto", "numpy", "native"), group="Device")  # fmt: skip
    exact_conv: bool = option(
        "flag", False, "Convolutions of native kernels are sums of products: none is Winograd's.",
        needs="kernels=native", group="Device")  # fmt: skip

    @property
    def place(self) -> str:
        """The device to open: native kernels are the CPU's, where nobody says another one."""
        return "cpu" if self.kernels == "native" and self.device == "auto" else self.device

    @property
    def one_size(self) -> bool:
        """Whether all batches have to have the same sizes: those that a plan is made for."""
        return self.memory is not None or self.stages > 1

    @property
    def in_two(self) -> bool:
        """Whether a step updates only after somebody has looked at all gradients."""
        return self.micro_batches > 1 or self.loss_scale is not None or self.stages > 1

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Options by name, as a program gives them: sizes are bytes, or texts as in a command.

        Raises:
            UsageError: one is of another kind, or beyond its bounds.
        """
        known = options_of(cls)
        read: dict[str, Any] = {
            name: parse_bytes(value)
            if known[name].kind == "bytes" and isinstance(value, str)
            else value
            for name, value in given.items()
        }
        hold("Trainer", read, cls)
        for name, value in read.items():
            known[name].require_bounds(value)
        return cls(**read)

    def require(self) -> None:
        """Refuse what does not go together.

        Raises:
            UsageError: epochs and steps, a memory and what that chooses, or a loss scale or a decay
                that is none.
        """
        require(self)
        if self.stages > 1 and self.shard == "gradients":
            raise UsageError(
                "--shard gradients cannot be combined with --stages: gradients of several "
                "micro-batches are on their way at once; take --shard optimizer"
            )
        if self.ema is not None and not 0 <= self.ema < 1:
            raise UsageError(f"the decay of an average is from 0 to below 1, not {self.ema}")
        fixed_scale(self.loss_scale)


def fixed_scale(given: str | float | None) -> float | None:
    """The number that a loss scale is; None where it is dynamic, or there is none.

    Raises:
        UsageError: it is neither a positive number nor `dynamic`.
    """
    if given is None or given == "dynamic":
        return None
    try:
        scale = float(given)
    except ValueError:
        scale = math.nan
    if not 0 < scale < math.inf:
        raise UsageError(f"a loss scale is a positive number, or dynamic, not {given!r}")
    return scale


def different(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first entry in which two descriptions differ, for people; empty if none does."""
    for name in dict.fromkeys((*before, *now)):
        old, new = before.get(name), now.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            inner = different(old, new)
            if inner:
                return f"{name}: {inner}"
        elif old != new:
            return f"{name} is {_said(old)} there and {_said(new)} here"
    return ""


def _said(found: Any) -> str:
    return "nothing" if found is None else f"{found}"
