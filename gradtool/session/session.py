"""The steps of a training graph in one arena."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from gradtool import io
from gradtool.arguments import takes
from gradtool.errors import UsageError
from gradtool.exec import feeds
from gradtool.exec.binding import Binding
from gradtool.exec.bound_model import Resident
from gradtool.exec.closing import Closing
from gradtool.exec.device import open_device
from gradtool.exec.hooks import Hooks, Shared, put_on
from gradtool.exec.results import Result
from gradtool.exec.run import planned_for, require
from gradtool.exec.state_ready import Settling, carried
from gradtool.exec.state_ready import put_on as settle
from gradtool.exec.watch import Watch
from gradtool.graph.gradients_at import gradients_of, inner_gradients
from gradtool.graph.stages import seed_of
from gradtool.graph.training_info import TrainingInfo
from gradtool.ops.shared.runtime_limits import limited
from gradtool.passes.accumulation import held_by
from gradtool.passes.evaluation import evaluation
from gradtool.passes.kept_gradients import keep_gradients, separate_gradients
from gradtool.planning.plan import Plan
from gradtool.planning.shared_layout import NO_PARTS, Parts
from gradtool.session.feeding import Batch, counted, matching, scaled
from gradtool.session.hooking import Hooking
from gradtool.session.options import SessionOptions
from gradtool.session.setting import Setting
from gradtool.session.sharing import store_of
from gradtool.session.sums import Sums, Updating
from gradtool.workloads.options import documented
from gradtool.workloads.rewritten import Graph, model_of


class Session(Setting, Updating, Hooking, Closing):
    """The steps of a training graph, one after the other, in one arena.

    Not for several threads at once.

    Attributes:
        steps: how many steps were taken.
        check_nan: a step ends at the first node with a NaN; may be changed between steps.

    Example:
        step = gt.grad(gt.load("samples/cnn.onnx"), optimizer="sgd", train_mode=True)
        with gt.Session(step) as session:
            session.step({**np.load("samples/cnn.npz"), "lr": 0.1}).loss
    """

    @takes(SessionOptions, documented(SessionOptions))
    def __init__(self, graph: Graph, options: SessionOptions) -> None:  # noqa: D417 - by `takes`
        """Bind a graph to a device; planned now if its sizes are known, else by the first step.

        Args:
            graph: a training graph, with updates if it was made with an optimizer.

        Raises:
            MissingData: a weight is absent.
            UsageError: an operator has no kernel, there is no such gradient, or plan_memory < 0.
            DeviceError: the device is missing or out of memory, or has no native kernels.
        """
        updates = None if options.update is None else model_of(options.update)
        self._models = (model_of(graph),) if updates is None else (model_of(graph), updates)
        self._forward = None if options.forward is None else model_of(options.forward)
        self._given = {}
        self._ahead = options.ahead
        self._limits = options.max_turns, options.max_dynamic
        self._plan_memory = _no_less_than_nothing(options.plan_memory)
        self._shared = frozenset(self._model.graph.initializers)
        self._store = store_of(self._models, open_device(options.device), options.share)
        self._store.fix(name for m in self._models for name in TrainingInfo.of(m).changing)
        self._kernels = require(
            planned_for(self._model, options.kernels, self._store.device.name), self._store.device
        )
        self._hooks = Hooks()
        self._gradients = gradients_of(self._model)
        self._train = self._resident(self._keeping(options.keep_gradients))
        self._sums = None if updates is None else self._summing(updates, options.parts or NO_PARTS)
        self._evaluated: dict[bool, Resident] = {}
        self.check_nan, self._is_open, self.steps = options.check_nan, True, 0
        if not io.symbols(self._model):
            self._expect_updates()
            self._train.plan_ahead()

    def _resident(self, model: ir.Model) -> Resident:
        return Resident(
            model,
            self._store,
            "train",
            self._kernels,
            shared=self._shared,
            most=self._plan_memory,
        )

    def _summing(self, updates: ir.Model, parts: Parts) -> Sums:
        held = held_by(updates)
        resident = Resident(updates, self._store, "update", self._kernels, shared=held, parts=parts)
        return Sums(resident, self._store)

    def _keeping(self, patterns: Sequence[str]) -> ir.Model:
        """The graph with the matching gradients as further outputs."""
        if not patterns:
            return self._model
        inner = inner_gradients(self._model) | self._gradients
        chosen = matching(patterns, inner, "gradient of")
        model = keep_gradients(self._model, {name: inner[name] for name in chosen})
        self._gradients = gradients_of(model)
        return model

    def step(
        self,
        batch: Batch,
        *,
        loss_scale: float | None = None,
        copy: bool = True,
        settling: Settling | None = None,
    ) -> Result:
        """Run forward and backward once; parameters and state keep their new values.

        Args:
            batch: arrays by name: of numpy, of anything with `__dlpack__`, CuPy's on a device,
                sparse ones of SciPy; numbers and lists take the type of their input.  One with the
                name of a parameter or of state takes its place from now on.
            loss_scale: the gradient of the loss in place of 1, which needs an input (`loss_seed` of
                `gradtool.grad`).  Each gradient is divided by it when it is final, before hooks see
                it and before its update; where gradients are added up, that is left to `update`.
            copy: results are copies; False: views of the arena until the next call.
            settling: is told of parameters and state whose next values are final, in an order that
                is always the same.

        Returns:
            The loss, gradients, and outputs but next values of parameters and state, which stay in
            the arena.

        Raises:
            MissingData: an input is absent.
            UsageError: nothing has a name that is given, an array has another type or shape, the
                graph has no input for a loss scale, or the session is closed.
            Exhausted: the step goes on beyond `max_turns` or `max_dynamic`.
            GradtoolError: a node has a NaN, and `check_nan` is set.
        """
        self._require_open()
        if self._sums is not None:
            batch = self._known_ahead(batch)
        batch = counted(self._model, batch, self.steps)
        if loss_scale is not None:
            batch = scaled(self._model, batch, loss_scale)
        binding = self._fed(batch)
        divisor = loss_scale if self._sums is None else None
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

    def make_ready(self, batch: Batch) -> None:
        """Bind steps for the sizes of a batch, and updates, with parameters and state in the arena.

        Args:
            batch: arrays by name, as of `step`.

        Raises:
            MissingData: an input is absent.
            UsageError: as `step`.
        """
        self._require_open()
        seed = seed_of(self._model)
        if seed is not None and seed not in batch:
            batch = scaled(self._model, batch, 1.0)
        self._fed(counted(self._model, batch, self.steps)).enter()
        if self._sums is not None:
            self._sums.feed({}, 1.0).enter()

    def _fed(self, batch: Batch) -> Binding:
        """The binding of a step, fed with a batch."""
        self._expect_updates()
        binding = self._train.feed(batch)
        if not self._shared.isdisjoint(batch):
            self._given |= {name: None for name in batch if name in self._shared}
        return binding

    def _expect_updates(self) -> None:
        """Expect the updates before a step is bound: this fixes the order of the sums."""
        if self._sums is not None:
            self._sums.expect()

    def evaluate(self, batch: Batch, *, copy: bool = True) -> Result:
        """Run the forward model on the parameters as they are, in its form for inference.

        BatchNormalization takes running statistics and Dropout drops nothing.  Nothing but the
        results changes.

        Args:
            batch: arrays by name, as of `step`; the loss is computed if its labels are given.
            copy: results are copies; False: views of the arena until the next call.

        Returns:
            The outputs of the model, and its loss.

        Raises:
            MissingData: an input is absent.
            UsageError: nothing has a name that is given, an array has another type or shape, or
                the session is closed.
            Exhausted: the run goes on beyond `max_turns` or `max_dynamic`.
        """
        self._require_open()
        batch = self._known_ahead(batch)
        resident = self._evaluation(loss=True)
        if any(name not in batch for name in resident.needs()):
            resident = self._evaluation(loss=False)
        binding = resident.feed(batch, feeds.takers(self._model))
        seconds = self._run(binding.enter().step)
        return binding.outlets.take(seconds, copy=copy)

    def _known_ahead(self, batch: Batch) -> Batch:
        """A batch with the facts its loss needs."""
        return batch if self._ahead is None else self._ahead(batch)

    def _evaluation(self, *, loss: bool) -> Resident:
        if loss not in self._evaluated:
            own = self._forward if loss else None
            model = evaluation(self._model, loss=loss) if own is None else own
            self._evaluated[loss] = Resident(
                model,
                self._store,
                "evaluate",
                self._kernels,
                shared=self._shared,
                most=self._plan_memory,
            )
        return self._evaluated[loss]

    def _run(self, run: Callable[[], None]) -> float:
        """Run the fed step; returns its seconds."""
        start = time.perf_counter()
        with np.errstate(all="ignore"):
            if self._limits == (None, None):
                run()
            else:
                with limited(*self._limits):
                    run()
        self._store.device.synchronize()
        return time.perf_counter() - start

    def _watched(
        self, binding: Binding, batch: Batch, scale: float | None
    ) -> tuple[Binding, Watch]:
        """A fed binding, and a watch over it with all hooks."""
        while True:
            watch = Watch(binding.enter())
            try:
                put_on(watch, self._hooks, self._gradients, scale)
            except Shared as shared:
                names = [self._gradients[name] for name in shared.names]
                model = separate_gradients(self._train.model, names)
                self._train.clear()
                self._train = self._resident(model)
                binding = self._fed(batch)
                continue
            if self.check_nan:
                watch.find_nan(self.steps + 1)
            return binding, watch

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The cached plans: `train`, `update`, `evaluate`; of each the latest first."""
        update = () if self._sums is None else (self._sums.updates,)
        residents = (self._train, *update, *self._evaluated.values())
        return tuple(plan for resident in residents for plan in resident.plans)

    def close(self) -> None:
        """Let go of the arena; uncopied results keep it."""
        if not self._is_open:
            return
        self._is_open = False
        self._train.clear()
        if self._sums is not None:
            self._sums.updates.clear()
        for resident in self._evaluated.values():
            resident.clear()
        self._evaluated.clear()
        self._store.close()

    def __repr__(self) -> str:
        state = f"{self.steps} steps" if self._is_open else "closed"
        return f"Session({self._model.graph.name!r}, {self._store.device.name}, {state})"


def _no_less_than_nothing(plan_memory: int) -> int:
    if plan_memory < 0:
        raise UsageError(f"plan_memory is {plan_memory}, and has to be 0 bytes or more")
    return plan_memory
