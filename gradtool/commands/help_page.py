"""The options of a command in groups, where they are many."""

from __future__ import annotations

from collections.abc import Sequence

import click

MANY = 20  # options that are read as one list

# By title the parameters of all commands, in the order of a page; `train.keep` is of one command.
GROUPS = {
    "Data": "data mapped train.batch epochs steps shuffle seed inputs",
    "Sizes": "batch dims shapes values",
    "Loss and gradients": "loss labels head_grads accumulate grad_buffers only_loss train_mode ste "
    "fuse_attention",
    "What learns": "wrt no_grad input_grad lora lora_target lora_alpha",
    "Optimizer": "optimizer update optimizer_option no_decay clip_norm clip_value loss_scale "
    "sparse ema",
    "Learning rate": "lr schedule warmup lr_scale",
    "Evaluation": "evaluate every metric patience result",
    "Plan": "policy mirror.keep drop strategy budget max_slowdown checkpoints max_batch frontier "
    "points cost time_limit prove memory plan plans micro_batches explain",
    "Ranks and stages": "ranks stages shard shard_tables staleness sync_batchnorm deterministic "
    "timeout link latency",
    "Device": "device engine kernels exact_conv threads",
    "What is done": "repeat measure verify check_nan check_arena fetch max_turns max_dynamic "
    "profile explain_kernels",
    "Form of the file": "split params_as_inputs functions barrier portable opset external_data",
    "Results": "model report output force folder resume checkpoint_every train.keep lora_adapter "
    "tensorboard save_grads save_outputs by top html svg trace form help",
}
PLACES = {name: title for title, names in GROUPS.items() for name in names.split()}


def grouped(command: str, shown: Sequence[click.Option]) -> dict[str, list[click.Option]]:
    """The options by the title that they stand under, as a page has them."""
    if len(shown) < MANY:
        return {"Options": list(shown)}
    places = list(PLACES)
    at = {option: _place(command, option.name or "") for option in shown}
    found: dict[str, list[click.Option]] = {}
    for option in sorted(shown, key=lambda each: places.index(at[each])):
        found.setdefault(PLACES[at[option]], []).append(option)
    return found


def _place(command: str, name: str) -> str:
    """Where a parameter stands in `PLACES`; last of all what click adds, which is --help."""
    own = f"{command}.{name}"
    return next((place for place in (own, name) if place in PLACES), "help")
