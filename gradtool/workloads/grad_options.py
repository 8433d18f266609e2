"""The options of a gradient: of which loss, by which values, in which form, with which update."""
# ruff: noqa: RUF009 - `option` makes a field

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from gradtool.arguments import Rank, Seed
from gradtool.graph.optimizers import OPTIMIZERS, UPDATING
from gradtool.workloads.options import keyword, option, options_of, require

_LOSS, _LEARNS, _OPTIMIZER = "Loss and gradients", "What learns", "Optimizer"
_UPDATES: Mapping[str, Any] = {"needs": "optimizer", "group": _OPTIMIZER}


@dataclass(frozen=True, kw_only=True)
class GradOptions:
    """The options of `gradtool.grad`, whose docstring describes each.

    Raises:
        UsageError: a number is out of bounds, or two options cannot be combined.
    """

    loss: str | Callable[..., Any] | Sequence[str | Callable[..., Any]] = option(
        "texts", "auto", "The loss: a value, or ce, mse, l1, smooth-l1, huber, bce, bce-logits, "
        "nll, kl, focal, dice, focal-logits, dice-logits, triplet, contrastive:a,b, "
        "distill:student,teacher, mean, sum, causal (of a decoder: ce@shift=1), or "
        "pkg.mod:function; several are added.  Of classes, settings are axis, ignore, smoothing, "
        "weight, shift and soft, as in ce:logits@ignore=0,shift=1; of others with labels examples "
        "and mask.",
        metavar="[WEIGHT*]NAME|KIND[:OUTPUT][@KEY=X,...]", shown="auto", group=_LOSS,
        doc="`auto`, the name of a value, `KIND[:OUTPUT][@SETTINGS]` (see `gradtool.losses`), a "
            "function `f(op, y[, labels])` or the path of one, perhaps with `WEIGHT*` before it; "
            "several are added.")  # fmt: skip
    labels: str | Mapping[str, str] = option(
        "labels", "labels", "The name of the input that holds the labels.",
        metavar="[OUTPUT=]NAME", shown="labels", group=_LOSS,
        doc="the name of the input of labels, or one per output.")  # fmt: skip
    wrt: Sequence[str] | None = option(
        "names", None, "Differentiate by these values; default: every parameter.",
        metavar="GLOB|@FILE", group=_LEARNS,
        doc="parameters to differentiate by, names or globs; by default all that are "
            "floating-point.")  # fmt: skip
    no_grad: Sequence[str] = option(
        "names", (), "Let no gradient flow into these values.", metavar="GLOB|@FILE",
        group=_LEARNS, doc="parameters left out, names or globs.")  # fmt: skip
    input_grad: Sequence[str] = option(
        "names", (), "Differentiate by these float inputs as well.", metavar="GLOB|@FILE",
        trains=False, group=_LEARNS, doc="inputs to differentiate by, names or globs.")  # fmt: skip
    head_grads: bool = option(
        "flag", False, "No loss: an input per output carries its gradient.",
        excludes="loss labels only_loss", why="is without a loss", trains=False,
        group=_LOSS,
        doc="no loss: an input per output, of its shape, carries its gradient.")  # fmt: skip
    accumulate: Literal["chain", "sum"] = option(
        "choice", "chain", "Add gradients as they appear, or all at once.",
        choices=("chain", "sum"), group=_LOSS,
        doc="how several gradients of a value are added: a `chain`, or one `sum`.")  # fmt: skip
    train_mode: bool | str | Sequence[str] = option(
        "globs", False, "Turn BatchNormalization and Dropout to training, but norms whose "
        "parameters --wrt or --no-grad freezes; of norms exactly those of these names.",
        metavar="[=GLOB]", group=_LOSS,
        doc="BatchNormalization and Dropout train, but norms whose parameters are frozen; names or "
            "globs (node, module or tensor) are of the norms that train.")  # fmt: skip
    ste: bool = option(
        "flag", False, "Let gradients straight through quantisation, as if it did not round.",
        group=_LOSS, doc="gradients pass straight through quantisation.")  # fmt: skip
    grad_buffers: bool = option(
        "flag", False, "Add each gradient to an input of its shape (micro-batches).", trains=False,
        group=_LOSS, doc="each gradient is added to an input of its shape.")  # fmt: skip
    grad_norm: bool = option(
        "flag", False, "Return the norm of all gradients together as well, as grad_norm.",
        excludes="sparse", trains=False, group=_LOSS,
        doc="return the norm of all gradients together, before limits, as `grad_norm`."
    )  # fmt: skip
    lora: Rank | None = option(
        "whole", None, "Train adapters of this rank beside weights of MatMul, Gemm and Conv, and "
        "what --wrt names; the weights stay.", least=1, metavar="RANK", group=_LEARNS,
        doc="the rank of adapters beside weights of MatMul, Gemm and Conv, which train in place of "
            "the parameters; what `wrt` names trains as well.")  # fmt: skip
    lora_target: Sequence[str] = option(
        "names", (), "The weights that have an adapter; default: every one that can.",
        metavar="GLOB|@FILE", needs="lora", group=_LEARNS,
        doc="weights with adapters, names or globs; all by default.")  # fmt: skip
    lora_alpha: float | None = option(
        "number", None, "Scale adapters by this over their rank.", above=0, metavar="ALPHA",
        shown="RANK", needs="lora", group=_LEARNS,
        doc="adapters are scaled by this over the rank.")  # fmt: skip
    rslora: bool = option(
        "flag", False, "Scale adapters by alpha over the root of their rank, not over the rank.",
        needs="lora", group=_LEARNS,
        doc="adapters are scaled by alpha over the root of the rank.")  # fmt: skip
    fuse_attention: bool = option(
        "flag", True, "Leave attention as it is written: backward keeps the probabilities that "
        "plain operators compute.", group=_LOSS,
        doc="attention keeps one number per row, and computes probabilities again.")  # fmt: skip
    fuse_loss: bool = option(
        "flag", True, "Leave the cross-entropy of many classes as it is written: the scores of all "
        "rows are there at once, and so is their gradient.", group=_LOSS,
        doc="the cross-entropy of thousands of classes computes scores a block at a time, and "
            "again in backward, where nobody else reads them.")  # fmt: skip
    only_loss: bool = option(
        "flag", False, "Return the loss and gradients, not what MODEL returns: what only the loss "
        "reads dies there.", group=_LOSS,
        doc="return the loss and gradients, not the outputs of the model.")  # fmt: skip
    optimizer: str = option(
        "choice", "none", "Update the parameters in place of returning their gradients: "
        f"{', '.join(UPDATING)}.  The learning rate is an input, lr, and so are betas, momentum "
        "and weight decay; defaults and formulas are those of torch.optim (see "
        "--optimizer-option).", choices=OPTIMIZERS, metavar="NAME", group=_OPTIMIZER,
        doc="makes a whole training step (see docs/optimizers.md): next values of parameters and "
            "state are outputs in place of the parameters' gradients.")  # fmt: skip
    optimizer_option: Mapping[str, Any] | Sequence[str] = option(
        "texts", (), "Set a number or a switch of the optimizer, as in momentum=0.9 or nesterov.",
        metavar="NAME[=VALUE]", **_UPDATES,
        doc='numbers and switches of it, `{"momentum": 0.9, "nesterov": True}`.')  # fmt: skip
    clip_norm: float | None = option(
        "number", None, "Before the update, scale all gradients together to at most this norm "
        "(an input, clip_norm).", above=0, metavar="NUMBER", **_UPDATES,
        doc="the largest norm of all gradients together, after `clip_value`.")  # fmt: skip
    clip_value: float | None = option(
        "number", None, "Before the update, and before --clip-norm, clip each gradient's elements "
        "(an input, clip_value).", above=0, metavar="NUMBER", **_UPDATES,
        doc="the largest magnitude of an element of a gradient.")  # fmt: skip
    no_decay: Sequence[str] = option(
        "names", (), "Update these parameters without weight decay.", metavar="GLOB|@FILE",
        **_UPDATES, doc="parameters without weight decay, names or globs.")  # fmt: skip
    lr_scale: Mapping[str, float] | Sequence[str] = option(
        "texts", (), "Multiply the learning rate of these parameters; the last that matches "
        "counts.", metavar="GLOB=FACTOR", needs="optimizer", group="Learning rate",
        doc='factors of the learning rate by name or glob, `{"backbone.*": 0.1}`.')  # fmt: skip
    sparse: bool = option(
        "flag", False, "Update only the rows of embedding tables that a step reads (sgd, adagrad, "
        "and adam as SparseAdam does); a whole gradient of a table is not made.", **_UPDATES,
        doc="tables that Gather alone reads have rows for a gradient.")  # fmt: skip
    lora_seed: Seed = keyword(0, "the seed that adapters are drawn with.")
    unfrozen: Mapping[int, Sequence[str]] | None = keyword(
        None, "by epoch, names and globs of parameters whose updates count their own steps."
    )
    loss_seed: bool = keyword(
        False, "an input carries the gradient of the loss (a loss scale) in place of 1."
    )
    documents: bool = keyword(
        False, "the input `documents` numbers the texts of packed rows: attention stays within one."
    )
    save_less: bool = keyword(
        True, "backward keeps as few bytes of forward as it can without computing twice."
    )
    on_loss: Callable[..., Any] | None = keyword(
        None, "may rewrite the forward graph before backward is made, and returns the loss."
    )
    on_node: Callable[..., Any] | None = keyword(
        None, "is called with every node that a rule emits."
    )
    own: bool = keyword(False, "the model may be used up, which spares a copy.")

    def __post_init__(self) -> None:
        require(self)

    def without_updates(self) -> Self:
        """The same gradients, which nothing updates the parameters by."""
        known = options_of(type(self))
        updating = (o for o in known.values() if o.name == "optimizer" or o.needs == "optimizer")
        return replace(self, **{each.name: each.default for each in updating})


UNTRAINED = tuple(name for name, each in options_of(GradOptions).items() if not each.trains)
