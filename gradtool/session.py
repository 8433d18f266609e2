"""A training graph bound once and stepped many times.

    with gt.Session(training) as session:
        for batch in batches:
            result = session.step(batch | {"lr": 3e-4})
        session.evaluate(batch)
        session.save("model.trained.onnx")

Its parameters and the state of its optimizer lie in one arena, where each step leaves them for the
next.  Sizes that were not fed before are planned once; the latest few plans are kept, and all of
them work on the same parameters.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import numpy as np
import onnx_ir as ir

from gradtool import io
from gradtool.errors import UsageError
from gradtool.exec import feeds
from gradtool.exec.binding import Binding
from gradtool.exec.device import open_device
from gradtool.exec.hooks import Hooks, OnEnd, OnGradient, OnNode, OnStart, Shared, put_on
from gradtool.exec.parameters import parameters_of
from gradtool.exec.resident import Resident
from gradtool.exec.results import Result
from gradtool.exec.run import require
from gradtool.exec.settling import Settling, carried
from gradtool.exec.settling import put_on as settle
from gradtool.exec.store import Store
from gradtool.exec.watch import Watch
from gradtool.graph.counted import numbers_of
from gradtool.graph.gradients_at import gradients_of, inner_gradients
from gradtool.graph.lora import adapters_of
from gradtool.graph.metadata import AVERAGES, GRADIENTS, ROWS, SCALE, STATE
from gradtool.graph.stages import seed_of, stage
from gradtool.io import original
from gradtool.kernels.allowance import limited
from gradtool.kernels.native import Kernels
from gradtool.passes.accumulation import held_by
from gradtool.passes.evaluation import evaluation
from gradtool.passes.kept_gradients import keep_gradients, separate_gradients
from gradtool.planning.plan import Plan
from gradtool.planning.sharing import NO_PARTS, Parts
from gradtool.text.words import some, suggest
from gradtool.workloads.rewriting import Graph, model_of

Batch = Mapping[str, Any]
Remove = Callable[[], None]
MOST_PLANS = 4
T = TypeVar("T")


class Session:
    """The steps of a training graph, one after the other, in one arena.

    Not for several threads at once.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        update: Graph | None = None,
        parts: Parts = NO_PARTS,
        device: str = "cpu",
        kernels: Kernels = "numpy",
        keep_gradients: Sequence[str] = (),
        check_nan: bool = False,
        most_plans: int = MOST_PLANS,
        max_turns: int | None = None,
        max_dynamic: int | None = None,
    ) -> None:
        """Bind a graph to a device; planned now if its sizes are known, else by the first step.

        `update` is what a graph that adds up gradients leaves to `Session.update` (see
        `gradtool.passes.accumulation`), whose `parts` lie inside of parameters and sums: by name,
        that of the whole, and bytes from its start.  `device` is `cpu`, `cuda`, `cuda:N` or
        `auto`.  With `native` kernels the library computes what it can on the CPU, with
        `exact` ones without Winograd's convolutions.
        `keep_gradients` are names or globs of values inside of the graph, and of parameters that it
        updates, whose gradients are results as well.  With `check_nan` (an attribute, too) a step
        ends at the first node with a NaN.  Of the plans for different sizes the latest `most_plans`
        are kept.  A step stops after `max_turns` turns of loops, and before values whose sizes
        depend on data take more than `max_dynamic` bytes.

        Raises:
            MissingData: a weight is absent.
            UsageError: an operator has no kernel, or there is no such gradient.
            DeviceError: the device is missing or out of memory, or has no native kernels.
        """
        self._model = model_of(graph)
        self._limits = max_turns, max_dynamic
        self._most_plans = most_plans
        models = [self._model, *([] if update is None else [model_of(update)])]
        self._models = tuple(models)
        self._shared = frozenset(self._model.graph.initializers)
        self._store = Store(open_device(device))
        self._kernels = kernels
        require(kernels, self._store.device)
        self._hooks = Hooks()
        self._gradients = gradients_of(self._model)
        self._train = self._resident(self._keeping(keep_gradients))
        self._update = None if update is None else Resident(
            models[1], self._store, "update", 1, kernels, shared=held_by(models[1]), parts=parts
        )  # fmt: skip
        self.check_nan = check_nan
        self._evaluated: dict[bool, Resident] = {}
        self._is_open = True
        self.steps = 0
        if self._update is not None:
            self._update.plan_ahead(bind=False)
        if not io.symbols(self._model):
            self._train.plan_ahead()

    def _resident(self, model: ir.Model) -> Resident:
        return Resident(
            model, self._store, "train", self._most_plans, self._kernels, shared=self._shared
        )

    def _keeping(self, patterns: Sequence[str]) -> ir.Model:
        """The graph that also returns the gradients that match."""
        if not patterns:
            return self._model
        inner = inner_gradients(self._model) | self._gradients
        chosen = matching(patterns, inner, "gradient of")
        model = keep_gradients(self._model, {name: inner[name] for name in chosen})
        self._gradients = gradients_of(model)
        return model

    # ------------------------------------------------------------------- running

    def step(
        self,
        batch: Batch,
        *,
        loss_scale: float | None = None,
        copy: bool = True,
        settling: Settling | None = None,
    ) -> Result:
        """Run forward and backward once; parameters and state keep what the step made of them.

        `batch` has arrays by name: of numpy, of anything with `__dlpack__`, CuPy's on a device,
        sparse ones of SciPy; numbers and lists take the type of their input.  What has the name of
        a parameter or of state takes its place from now on.  The outputs are those of the graph
        without next values of parameters and state, which stay in the arena.  With a `loss_scale`
        the gradient of the loss is that instead of 1 (the graph needs an input for it: `loss_seed`
        of `gradtool.grad`), and each gradient is divided by it when it is final, before hooks see
        it and before its update; where gradients are added up, that is left to `update`.  Results
        are copies, or with `copy=False` views of the arena until the next call.  `settling` is told
        of parameters and state whose next values are final, in an order that is always the same.

        Raises:
            MissingData: an input is absent.
            UsageError: nothing has a name that is given, an array has another type or shape, or
                the session is closed.
            Exhausted: the step goes on beyond `max_turns` or `max_dynamic`.
            GradtoolError: a node has a NaN, and `check_nan` is set.
        """
        self._require_open()
        if loss_scale is not None:
            batch = self._scaled(batch, loss_scale)
        binding = self._train.feed(self._counted(batch))
        divisor = loss_scale if self._update is None else None
        if self._hooks.watching or self.check_nan or divisor is not None:
            binding, watch = self._watched(binding, batch, divisor)
        else:
            watch = Watch(binding.enter())
        if settling is not None:
            settle(watch, settling)
        run = watch.run if watch.before or watch.after else watch.executor.step
        for begin in self._hooks.before:
            begin(binding.inputs())
        seconds = self._run(run)
        binding.outlets.carry()
        if settling is not None:
            for name in carried(binding.plan.program):
                settling.settled(name)
        self.steps += 1
        result = binding.outlets.take(seconds, copy=copy)
        for end in self._hooks.after:
            end(result)
        return result

    def update(self, batch: Batch | None = None, *, scale: float = 1.0) -> None:
        """Update by the sums of gradients, each times `scale`; the sums are zero afterwards.

        `batch` has what else the updates take, a learning rate.

        Raises:
            UsageError: the session was opened without updates, or is closed.
        """
        resident = self._require_update()
        name = resident.model.metadata_props[SCALE]
        binding = resident.feed({**(batch or {}), name: scale})
        self._run(binding.enter().step)
        binding.outlets.carry()
        self.forget_gradients()

    def forget_gradients(self) -> None:
        """Set the sums of gradients to zero, whatever they are."""
        for held in self._sums().values():
            held.fill(0)

    def gradients_are_finite(self) -> bool:
        """Whether no sum of gradients has an infinity or a NaN."""
        computable = self._store.device.computable
        return all(
            math.isfinite(float(end))
            for held in self._sums().values() if held.size
            for end in (computable(held).min(), computable(held).max())
        )  # fmt: skip

    def _sums(self) -> dict[str, Any]:
        props = self._require_update().model.metadata_props
        names = json.loads(props[GRADIENTS])
        names |= {rows: rows for rows in json.loads(props.get(ROWS, "{}")).values()}
        found = {name: self._store.value(total) for name, total in names.items()}
        return {name: held for name, held in found.items() if held is not None}

    @property
    def stepped(self) -> dict[str, np.dtype[Any]]:
        """The types of parameters and state that a step leaves next values of, by name."""
        names = json.loads(self._model.metadata_props.get(STATE, "{}"))
        held = self._model.graph.initializers
        return {n: np.dtype(d.numpy()) for n in names if (d := held[n].dtype) is not None}

    @property
    def spans(self) -> dict[str, tuple[int, int]]:
        """Where parameters and state lie in the arena, in order: their offsets and bytes."""
        return {name: (b.offset, b.bytes) for name, b in self._store.layout.items()}

    def span(self, names: Sequence[str]) -> Any:
        """State of one type that lies one after the other (`spans`), flat, where it lies.

        There may be a few bytes between the values, of no meaning.
        """
        return self._store.span(names)

    def make_ready(self, batch: Batch) -> None:
        """Bind steps for the sizes of a batch, and updates: what is trained lies in the arena then.

        Raises:
            MissingData: an input is absent.
            UsageError: see `step`.
        """
        self._require_open()
        seed = seed_of(self._model)
        if seed is not None and seed not in batch:
            batch = self._scaled(batch, 1.0)
        self._train.feed(self._counted(batch)).enter()
        if self._update is not None:
            self._update.feed({}).enter()

    def _require_update(self) -> Resident:
        self._require_open()
        if self._update is None:
            raise UsageError("the steps of this session update as they go: there are no sums")
        return self._update

    def evaluate(self, batch: Batch, *, copy: bool = True) -> Result:
        """Run the forward model on the parameters as they are, in its form for inference.

        BatchNormalization takes running statistics and Dropout drops nothing.  The loss is
        computed if its labels are given.  Nothing but the results changes; see `step`.
        """
        self._require_open()
        resident = self._evaluation(loss=True)
        if any(name not in batch for name in resident.needs()):
            resident = self._evaluation(loss=False)
        binding = resident.feed(batch, feeds.takers(self._model))
        seconds = self._run(binding.enter().step)
        return binding.outlets.take(seconds, copy=copy)

    def _evaluation(self, *, loss: bool) -> Resident:
        if loss not in self._evaluated:
            model = evaluation(self._model, loss=loss)
            self._evaluated[loss] = Resident(
                model,
                self._store,
                "evaluate",
                self._most_plans,
                self._kernels,
                shared=self._shared,
            )
        return self._evaluated[loss]

    def _run(self, run: Callable[[], None]) -> float:
        """Run what was fed; returns the seconds it took."""
        start = time.perf_counter()
        with np.errstate(all="ignore"):
            if self._limits == (None, None):
                run()
            else:
                with limited(*self._limits):
                    run()
        self._store.device.synchronize()
        return time.perf_counter() - start

    def _scaled(self, batch: Batch, loss_scale: float) -> Batch:
        """A batch with the gradient of the loss in it."""
        name = seed_of(self._model)
        if name is None or feeds.buffers(self._model):
            why = "the graph has no input for it" if name is None else "the graph adds to buffers"
            raise UsageError(
                f"no loss scale: {why}; make it with gradtool.grad(…, loss_seed=True) "
                "and without grad_buffers"
            )
        if not 0 < loss_scale < math.inf:
            raise UsageError(f"a loss scale is a positive number, not {loss_scale}")
        seed = feeds.takers(self._model)[name]
        assert seed.shape is not None and seed.dtype is not None  # noqa: PT018, S101 - as the loss
        return {**batch, name: np.full(seed.shape.numpy(), loss_scale, seed.dtype.numpy())}

    def _counted(self, batch: Batch) -> Batch:
        """A batch that draws as this step, unless it says which."""
        step = numbers_of(self._model).get("step")
        return {step: self.steps, **batch} if step else batch

    def _watched(
        self, binding: Binding, batch: Batch, scale: float | None
    ) -> tuple[Binding, Watch]:
        """A binding that was fed, and a watch over it with all that hooks ask for."""
        while True:
            watch = Watch(binding.enter())
            try:
                put_on(watch, self._hooks, self._gradients, scale)
            except Shared as shared:
                names = [self._gradients[name] for name in shared.names]
                model = separate_gradients(self._train.model, names)
                self._train.clear()
                self._train = self._resident(model)
                binding = self._train.feed(batch)
                continue
            if self.check_nan:
                watch.find_nan(self.steps + 1)
            return binding, watch

    # --------------------------------------------------------------------- hooks

    def before_step(self, call: OnStart) -> Remove:
        """Call a function with the inputs, by name, where they lie in the arena."""
        return _added(self._hooks.before, call)

    def after_step(self, call: OnEnd) -> Remove:
        """Call a function with the result of each step."""
        return _added(self._hooks.after, call)

    def before_node(self, call: OnNode, *patterns: str) -> Remove:
        """Call a function with each backward node, or those that match, before it runs.

        It is given the node's `name`, `op`, `inputs` and `outputs`: arrays by name.
        """
        return _added(self._hooks.nodes, ("before", self._nodes(patterns), call))

    def after_node(self, call: OnNode, *patterns: str) -> Remove:
        """Call a function with each backward node, or those that match, when it has run."""
        return _added(self._hooks.nodes, ("after", self._nodes(patterns), call))

    def on_gradient(self, call: OnGradient, *patterns: str) -> Remove:
        """Call a function with the name and the array of each final gradient, or those that match.

        It may change the array in place: updates and results are made of what it leaves there.
        Names are those of the values that the gradients are of.

        Raises:
            UsageError: a pattern matches nothing.
        """
        names = matching(patterns or ("*",), self._gradients, "gradient of")
        return _added(self._hooks.gradients, (frozenset(names), call))

    def _nodes(self, patterns: Sequence[str]) -> Sequence[str]:
        """Patterns for backward nodes, each of which matches some."""
        names = {
            node.name or "": None
            for node in self._train.model.graph
            if stage(node) in ("backward", "recompute")
        }
        if patterns:
            matching(patterns, names, "backward node")
        return patterns or ("*",)

    # -------------------------------------------------------------------- values

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans that are kept: `train`, `update`, `evaluate`; of each the latest first."""
        update = () if self._update is None else (self._update,)
        residents = (self._train, *update, *self._evaluated.values())
        return tuple(plan for resident in residents for plan in resident.plans)

    def values(self, *patterns: str, copy: bool = True) -> dict[str, np.ndarray[Any, Any]]:
        """What is trained as it is now, and state, by name; that which matches a name or glob.

        Results are copies, or with `copy=False` on the CPU views of the arena.

        Raises:
            UsageError: a pattern matches nothing, or the session is closed.
        """
        self._require_open()
        found = (name for model in self._models for name in _changing(model))
        names = list(dict.fromkeys(found))
        chosen = matching(patterns, names, "parameter or state") if patterns else names
        return {name: self._value(name, copy=copy) for name in chosen}

    def _value(self, name: str, *, copy: bool) -> np.ndarray[Any, Any]:
        held = self._store.value(name)
        if held is None:
            held = parameters_of(self._home(name))(name)
        device = self._store.device
        found: np.ndarray[Any, Any] = device.to_host(held) if copy or device.xp is not np else held
        return found

    @property
    def arena_bytes(self) -> int:
        """The bytes of the arena in which all plans lie."""
        return 0 if self._store.arena is None else int(self._store.arena.size)

    def _home(self, name: str) -> ir.Model:
        """The model that has an initializer."""
        return next(model for model in self._models if name in model.graph.initializers)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        averages: bool = False,
        values: Mapping[str, np.ndarray[Any, Any]] | None = None,
        force: bool = False,
        external_data: Literal["auto", "always", "never"] = "auto",
    ) -> tuple[Path, int]:
        """Write the model that was loaded with the weights as they are now; path and bytes.

        Its nodes, opset, names and metadata are those of the file; running statistics are weights
        as well, and adapters go into theirs.  What only training needs, the state of an optimizer,
        is not part of it.  With `averages`, the means that the graph keeps take the places of their
        parameters; `values` are taken for parameters and state as they are now.

        Raises:
            UsageError: the output exists and `force` is not given, or cannot be written; a weight
                that was trained is no tensor of the model; or the session is closed.
        """
        self._require_open()
        source = original.source_of(self._model.meta)
        held, of = values or {}, self._averages() if averages else {}
        pairs = [(name, of.get(name, name)) for name in self._model.graph.initializers]
        arrays = {
            name: held[source] if source in held else self._value(source, copy=False)
            for name, source in pairs if source in held or source in self._store.layout
        }  # fmt: skip
        model, lacking = original.with_arrays(source, arrays, adapters_of(self._model))
        lost = [name for name in lacking if self._is_trained_weight(name)]
        if lost:
            raise UsageError(
                f"the original model has no tensor called {some(lost)}, whose numbers have changed;"
                " save the training graph with gradtool.save, and load that into a session"
            )
        if external_data == "auto" and original.has_data_file(model):
            external_data = "always"
        return io.save(model, path, force=force, external_data=external_data, own=True)

    def _averages(self) -> dict[str, str]:
        """By parameter, the state that is its mean.

        Raises:
            UsageError: the graph keeps none.
        """
        found: dict[str, str] = {}
        for model in self._models:
            found |= json.loads(model.metadata_props.get(AVERAGES, "{}"))
        if not found:
            raise UsageError("the graph keeps no averages of its parameters")
        return found

    def save_adapter(
        self,
        path: str | os.PathLike[str],
        *,
        values: Mapping[str, np.ndarray[Any, Any]] | None = None,
        force: bool = False,
    ) -> list[tuple[Path, int]]:
        """Write the adapters that were trained for themselves; paths and bytes of two files.

        The model that was loaded goes to `path`, with a place for them that is zero by default,
        and they to a file for onnxruntime's `LoraAdapter`, whose name ends in `.onnx_adapter`.
        `values` are taken for what is trained as it is now.

        Raises:
            UsageError: there are none, an output exists and `force` is not given, or cannot be
                written; or the session is closed.
        """
        from gradtool.workloads import lora_files

        self._require_open()
        source = original.source_of(self._model.meta)
        held = self.values(copy=False) if values is None else values
        weights = {n: array for n, array in held.items() if not self._is_only_updated(n)}
        return lora_files.write(source, adapters_of(self._model), weights, path, force=force)

    def close(self) -> None:
        """Let go of the arena; results that were not copied keep it."""
        self._is_open = False
        self._store.clear()
        self._train.clear()
        if self._update is not None:
            self._update.clear()
        self._evaluated.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = f"{self.steps} steps" if self._is_open else "closed"
        return f"Session({self._model.graph.name!r}, {self._store.device.name}, {state})"

    def _is_trained_weight(self, name: str) -> bool:
        """Whether forward reads an initializer that has other numbers than at first."""
        if self._is_only_updated(name):
            return False
        first = parameters_of(self._model)(name)
        return bool(first.tobytes() != self._value(name, copy=False).tobytes())

    def _is_only_updated(self, name: str) -> bool:
        """Whether nothing but the optimizer reads an initializer."""
        value = self._model.graph.initializers.get(name)
        return value is None or all(stage(use.node) == "update" for use in value.uses())

    def _require_open(self) -> None:
        if not self._is_open:
            raise UsageError("the session is closed: open another one")


def _changing(model: ir.Model) -> list[str]:
    """The initializers that are trained, or are state."""
    props = model.metadata_props
    known = {n for key in (GRADIENTS, STATE) for n in json.loads(props.get(key, "{}"))}
    return [name for name in model.graph.initializers if name in known]


def _added(hooks: list[T], hook: T) -> Remove:
    hooks.append(hook)

    def remove() -> None:
        """Call it no more."""
        if hook in hooks:
            hooks.remove(hook)

    return remove


def matching(patterns: Sequence[str], names: Collection[str], what: str) -> list[str]:
    """The names that match any of the patterns, in their own order; an exact name wins.

    Raises:
        UsageError: a pattern matches nothing.
    """
    found: set[str] = set()
    for pattern in patterns:
        matched = [pattern] if pattern in names else [n for n in names if fnmatchcase(n, pattern)]
        if not matched:
            hint = suggest(pattern, names) or f"; there are {some(names) or 'none'}"
            raise UsageError(f"no {what} {pattern!r}{hint}")
        found.update(matched)
    return [name for name in names if name in found]
