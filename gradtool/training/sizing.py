"""The batch of a step and its kernels, from options."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.exec.device import open_device
from gradtool.exec.run import kernels_on
from gradtool.operators.kernel_sets import Kernels
from gradtool.passes.open_batch import is_fixed_at_one, open_batch
from gradtool.training.options import BATCH, TrainOptions
from gradtool.training.schedules import CONSTANT, Schedule, schedule
from gradtool.workloads.names import kernels_of


def kernels_for(options: TrainOptions, ranks: int) -> Kernels:
    """The kernels of the options on their device. Raises DeviceError if the device is missing."""
    on_cpu = options.kernels == "native" or ranks > 1
    device = "cpu" if on_cpu else open_device(options.device).name
    return kernels_on(device, kernels_of(vars(options), device))


def opened_for(model: ir.Model, options: TrainOptions) -> tuple[ir.Model, tuple[str, ...]]:
    """A model opened to the batch, and the message about it.

    A file that is fixed at one example is opened where that is possible.
    """
    batch = options.batch
    if not is_fixed_at_one(model):
        return model, ()
    if batch in (None, 1):
        said = "a step is of 1 example" + ("" if batch else "; --batch N opens it")
        return model, (f"the file is fixed at batch 1: {said}",)
    opened = model.clone()
    opened.meta.update(model.meta)
    try:
        open_batch(opened)
    except UsageError as error:
        return model, (f"{error}; {batch} examples are computed one after the other",)
    return opened, (f"the file is fixed at batch 1: opened to {batch}",)


def sized(
    options: TrainOptions,
    fixed: int | None,
    ranks: int,
    examples: int | None = None,
    usual: int = BATCH,
) -> TrainOptions:
    """The options with the examples of a step, and in how many parts a rank takes them.

    The default is the `usual` number, at most that of the `examples` of the data where it is known.

    Raises:
        UsageError: parts, ranks and what the model fixes do not divide the batch.
    """
    parts, batch = options.micro_batches, options.batch
    on_ranks = f" on {ranks} ranks" if ranks > 1 else ""
    if fixed is None:
        if batch is None:
            most = min(usual, usual if examples is None else examples)
            batch = most - most % (parts * ranks) or most
        if batch % (parts * ranks):
            divides = " times ranks" if ranks > 1 else ""
            raise UsageError(
                f"a batch of {batch} has no {parts} parts of the same size{on_ranks}: "
                f"micro_batches{divides} divides the batch"
            )
        return replace(options, batch=batch)
    batch = fixed * parts * ranks if batch is None else batch
    if batch % (fixed * ranks):
        raise UsageError(
            f"the model takes {fixed} examples at a time, of which {batch}{on_ranks} is no sum: "
            f"give a batch of {fixed * ranks}, or export the model with an open one"
        )
    found = batch // (fixed * ranks)
    if parts not in (1, found):
        raise UsageError(
            f"{batch} examples in {parts} parts{on_ranks} are {batch / parts / ranks:g} each, the "
            f"model takes {fixed}: leave out micro_batches, or export it with an open batch"
        )
    return replace(options, batch=batch, micro_batches=found)


def rates_of(
    first: float, options: TrainOptions, steps: int | None, source: str, *, evaluates: bool
) -> Schedule:
    """The learning rates of a training, from `first` if the options name none.

    Raises:
        UsageError: the schedule needs the number of steps, and data from the source do not tell it;
            or it needs evaluations, and there are none.
    """
    rate = first if options.lr is None else options.lr
    text, warmup = options.schedule or CONSTANT, options.warmup or 0
    rates = schedule(text, rate, warmup=warmup, steps=steps or 0)
    if rates.how.watches and not evaluates:
        raise UsageError(
            f"the schedule {rates.shape} goes by evaluations: give --eval DATA, or --split"
        )
    if rates.ends and steps is None:
        raise UsageError(
            f"the schedule {rates.shape} has to know the end: give steps, {source} does not tell "
            "how many there are"
        )
    return rates
