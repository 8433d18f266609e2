"""From models on the command line to workloads that can be planned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from gradtool.commands.decoder_folders import implied
from gradtool.commands.discovery import Sizes, meant
from gradtool.commands.models import (
    beside,
    is_differentiated,
    open_model,
    refuse_gradient_flags,
    training_of,
)
from gradtool.commands.options import filled
from gradtool.commands.output import SILENT
from gradtool.commands.plan_names import SUFFIX
from gradtool.errors import GradtoolError, UsageError
from gradtool.operators.kernel_sets import AUTO, NONE
from gradtool.workloads.grad_options import GradOptions
from gradtool.workloads.names import kernels_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from gradtool.commands.call import Call
    from gradtool.commands.output import Reporter
    from gradtool.operators.kernel_sets import Kernels
    from gradtool.workloads.workload import Workload


@dataclass(frozen=True)
class Opened:
    """A model ready to be planned; `dims` are all sizes used, `assumed` the ones nobody gave.

    `training` is its training graph with open sizes left open, `gradient` its options, `given`
    whether it came as one, `values` what inputs were given, `keep_cache` whether caches stay,
    `counted` the optimizer whose state counts beside the graph.
    """

    name: str
    training: ir.Model
    work: Workload
    dims: Mapping[str, int]
    assumed: Mapping[str, int]
    options: Mapping[str, Any]
    gradient: GradOptions
    given: bool = False
    counted: str = "none"
    values: Mapping[str, object] = field(default_factory=dict)
    keep_cache: bool = False

    @property
    def no_batch(self) -> str:
        """Why there is no largest batch to find."""
        why = "standard input is read once" if self.name == "-" else "its batch is fixed"
        return f"{self.name}: no largest batch to find: {why}"

    @property
    def batch(self) -> str | None:
        """The name of the batch size of the file; None if it is fixed."""
        return self._open_batch or self._open_sizes[0]

    @cached_property
    def _open_batch(self) -> str | None:
        """The batch, where the training graph leaves it open.

        A size that is called batch may be another one where that of the file was given.
        """
        from gradtool.workloads import batch_scaling

        is_as_filed = self.dims.keys() == self.assumed.keys()
        find = batch_scaling.batch_symbol if is_as_filed else batch_scaling.leading_symbol
        return find(self.training)

    @cached_property
    def _open_sizes(self) -> tuple[str | None, frozenset[str]]:
        """The batch of the file, and all its open sizes."""
        from gradtool import io
        from gradtool.workloads.batch_scaling import batch_symbol
        from gradtool.workloads.opening import load

        if self.name == "-":
            return None, frozenset()
        loaded = load(self.name, values=self.values, keep_cache=self.keep_cache)
        return batch_symbol(loaded), frozenset(io.symbols(loaded))

    def grown(self) -> Callable[[int], Workload] | None:
        """A function from a batch to the workload of that batch; None if the file fixes it.

        The batch is the leading size of the first input, else a size that is called batch.
        """
        from gradtool import io
        from gradtool.workloads import plans
        from gradtool.workloads.opening import load

        if self._open_batch is not None:
            return plans.grown(self.work, self._open_batch)
        symbol, known = self._open_sizes
        if symbol is None:
            return None
        rest = {n: size for n, size in self.dims.items() if n != symbol}
        loaded = load(
            self.name,
            dims={n: size for n, size in rest.items() if n in known},
            values=self.values,
            keep_cache=self.keep_cache,
        )
        training = training_of(SILENT, loaded, self.gradient)
        others = {n: rest.get(n, 1) for n in io.symbols(training) if n != symbol}
        return plans.workloads(training, others, symbol, self.work.kernels)


def open_workloads(
    call: Call,
    models: Sequence[str],
    *,
    sizes: Sizes,
    options: dict[str, Any],
    trains: bool = False,
) -> list[Opened]:
    """The models named, or the default one; with `trains` decoders of folders as a training's.

    Raises:
        UsageError: standard input is named twice, or no model is found.
    """
    if list(models).count("-") > 1:
        raise UsageError("standard input can be read once: give - once")
    asked = meant(call, models, sizes, options)
    told = partial(implied, call.reporter, options=asked.options, optimizer="adamw")
    found = [
        _open(call.reporter, source, asked.sizes,
              {**asked.options, **(told(source) if trains else {})})
        for source in asked.sources
    ]  # fmt: skip
    if all(each.given for each in found):
        refuse_gradient_flags(call.given, "the model holds its gradients")
    return found


def _open(
    reporter: Reporter,
    source: str,
    sizes: Sizes,
    options: dict[str, Any],
) -> Opened:
    from gradtool import io
    from gradtool.workloads import batch_scaling
    from gradtool.workloads.plans import workload

    with reporter.bar(f"reading {source}"):
        loaded = open_model(reporter, source, sizes)
        gradient, counted = filled(GradOptions, options), "none"
        if "budget" in options:
            gradient, counted = beside(loaded, gradient)
        given = is_differentiated(loaded, gradient)
        training = training_of(reporter, loaded, gradient)
    assumed = dict.fromkeys(io.symbols(training), 1)
    varied = batch_scaling.batch_symbol(loaded) if options.get("max_batch") else None
    told = [name for name in assumed if name != varied]
    if told:
        from gradtool.graph import deciding

        how = deciding.of_symbol(training.graph, told[0]).removeprefix("give it with ")
        how = f"give {how}" if how.startswith("--dim") else how
        reporter.say(f"assumed {_listed(assumed, told)} ({how})")
    try:
        work = workload(training, assumed, _kernels(options))
    except GradtoolError as error:
        if assumed:
            error.args = (f"{error} (with {_listed(assumed, assumed)} assumed: give --dim)",)
        raise
    dims = {**loaded.meta.get("gradtool.dims", {}), **assumed}
    values = dict(map(io.parse_set, sizes.values))
    return Opened(
        source, training, work, dims, assumed, options, gradient, given, counted, values,
        sizes.keep_cache,
    )  # fmt: skip


def _kernels(options: Mapping[str, Any]) -> Kernels:
    """The kernels to plan for; one without the option writes for other runtimes.

    Without a word about them they are those of a plan in a file.
    """
    named = options.get("plan") or ()
    plans = [p for p in ([named] if isinstance(named, str) else named) if p.endswith(SUFFIX)]
    if options.get("kernels", AUTO) == AUTO and plans:
        from gradtool.workloads import plan_files

        return plan_files.load(plans[0]).kernels
    return kernels_of(options) if "kernels" in options else NONE


def _listed(sizes: Mapping[str, int], names: Iterable[str]) -> str:
    return ", ".join(f"{name}={sizes[name]}" for name in names)
