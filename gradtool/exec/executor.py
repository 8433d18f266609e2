"""The arena executor: one allocation, views bound once, a flat list of bound kernel calls."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import length_hint
from typing import Any

import numpy as np

from gradtool.errors import MissingData, UsageError
from gradtool.exec.arena_views import ArenaViews
from gradtool.exec.array_interop import as_numpy
from gradtool.exec.call_batching import Link, linked
from gradtool.exec.device import Device
from gradtool.exec.dynamic import DynamicRegion
from gradtool.exec.parameters import Mapped, Parameters
from gradtool.graph.error_context import COMPLAINTS, blamed, failed
from gradtool.graph.families import split_name
from gradtool.graph.specs import Spec
from gradtool.native.call import Block, laid
from gradtool.operators.block_size import CACHE, grain
from gradtool.ops import kernels as registry
from gradtool.ops import native
from gradtool.ops.kernels import Kernel
from gradtool.ops.shared import runtime_limits as allowance
from gradtool.ops.shared.bounds import Doubts
from gradtool.ops.shared.call import call, spec_of
from gradtool.planning.plan import Plan
from gradtool.program import Step, Value

LEAVES = ("parameter", "state", "constant")  # values whose data the model holds


class Executor:
    """A plan bound to a device: `arena` holds `plan.peak` bytes, `calls` one callable per step.

    What is mapped is read where it lies in a file.  Nothing of size is allocated during a step, but
    by steps whose shapes depend on data (counted by `dynamic`) and by kernels in the simple style
    (counted in `plan.scratch`).
    """

    def __init__(
        self,
        plan: Plan,
        device: Device,
        parameters: Parameters,
        *,
        arena: Any = None,
        given: Mapping[int, Any] | None = None,
        held: Container[str] = (),
    ) -> None:
        """`arena` is used if it is given; `given` are arrays of inputs elsewhere.

        It has the data of the parameters and of the state that are `held`.
        """
        self.plan = plan
        self.program = plan.program
        self.device = device
        self.arena = device.empty(plan.peak) if arena is None else arena
        self._parameters = parameters
        self._mapped = Mapped.of(self.program, parameters)
        self.dynamic = DynamicRegion(self.program, device)
        self.arrays = ArenaViews(plan, device, self.arena, given or {}, self._mapped.data)
        self._numbers = {self.program.values[v].name: v for v in self.program.inputs}
        self._leaves = [v for v, d in enumerate(self.program.values) if self._is_read_in(v, d)]
        replaced = {d.alias for d in self.program.values if d.alias is not None}
        self._replaced = [v for v in self._leaves if v in replaced]
        self.load(held)
        self._doubts = None if self.program.grain == CACHE else Doubts()
        self.calls = self._bound()
        self.links: list[Link] | None = None  # what a step calls, made by the first

    # ------------------------------------------------------------------- running

    def set_input(self, name: str, array: Any) -> None:
        """Copy an input into the arena. Raises UsageError if type or shape do not fit."""
        index = self._input_number(name)
        datum = self.program.values[index]
        spec = datum.spec
        if spec is None:
            held = array if array is None or isinstance(array, list) else as_numpy(array)
            self.dynamic.hold(index, self.device.of_host(held))
            return
        if array.dtype != spec.dtype:
            raise UsageError(f"input {name!r} is {array.dtype}, the model takes {spec.dtype}")
        if array.shape != spec.shape:
            raise UsageError(f"input {name!r} has shape {array.shape}, planned for {spec.shape}")
        if datum.kind != "host" and spec.bytes:
            self.device.from_host(self.arrays[index], array)

    def place(self, name: str) -> Any:
        """Array of an input to write to directly; None if `set_input` has to do it."""
        index = self._input_number(name)
        datum = self.program.values[index]
        on_host = self.device.xp is np and datum.kind != "host"
        return self.arrays[index] if on_host and datum.spec is not None else None

    def step(self) -> None:
        """Run forward and backward once; updates leave new parameters where the old ones lay."""
        links = self.links
        if links is None:
            links = self.links = linked(self.calls, self.program)
        left = iter(links)
        try:
            with allowance.of_step(self.plan.total):
                for bound, _ in left:
                    bound()
        except allowance.Exhausted as error:
            if error.where:
                raise
            raise allowance.Exhausted(error.what, self._failed(links, left)) from None
        except COMPLAINTS as error:
            self._mapped.require_same()
            raise failed(self._failed(links, left), "its kernel", error) from error
        if self._doubts is not None:
            self._settle()
        self._mapped.require_same()

    def _failed(self, links: Sequence[Link], left: Iterator[Link]) -> str:
        """The label of the step of the last call."""
        return self._label(links[len(links) - length_hint(left) - 1].step)

    def call(self, index: int) -> None:
        """Run one step of the program by itself."""
        try:
            with blamed(lambda: self._label(index), "its kernel"):
                self.calls[index]()
        except allowance.Exhausted as error:
            if error.where:
                raise
            raise allowance.Exhausted(error.what, self._label(index)) from None
        self._settle()
        self._mapped.require_same()

    def _label(self, index: int) -> str:
        """Name of a step in messages: its operator and its name, or its first output."""
        step = self.program.steps[index]
        if step.name:
            return f"{step.op} node {step.name!r}"
        written = next(iter(step.writes), None)
        name = "" if written is None else self.program.values[written].name
        return f"{step.op} node that writes {name!r}"

    def load(self, held: Container[str] = ()) -> None:
        """Fill the constants, and parameters and state not `held`."""
        for index, constant in self.program.constants.items():
            datum = self.program.values[index]
            if datum.kind == "constant" and datum.spec is not None and constant.size:
                self.device.from_host(self.arrays[index], constant)
        values = self.program.values
        self._load_parameters(v for v in self._leaves if values[v].name not in held)

    def rewind(self) -> None:
        """Put back the parameters and the state that steps have overwritten."""
        self._load_parameters(self._replaced)

    def value(self, index: int) -> Any:
        """The array of a value, on the device; valid until its buffer is used again."""
        return self.dynamic.values.get(index, self.arrays[index])

    def result(self, index: int, *, copy: bool = True) -> np.ndarray[Any, Any]:
        """An output on the host: a copy, or on the CPU a view of the arena until a step."""
        value = self.value(index)
        return self.device.to_host(value) if copy or self.device.xp is not np else value

    def gradients(self, *, copy: bool = True) -> dict[str, np.ndarray[Any, Any]]:
        """All gradients, by the name of the value they belong to."""
        found = self.program.gradients.items()
        return {name: self.result(index, copy=copy) for name, index in found}

    def outputs(self, *, copy: bool = True) -> dict[str, np.ndarray[Any, Any]]:
        """All outputs but gradients, by name."""
        gradients = set(self.program.gradients.values())
        chosen = [v for v in self.program.outputs if v not in gradients]
        return {self.program.values[v].name: self.result(v, copy=copy) for v in chosen}

    # ------------------------------------------------------------------- binding

    def _is_read_in(self, index: int, datum: Value) -> bool:
        """Whether a value is a tensor of the model whose data the program does not hold."""
        known = datum.kind == "constant" and index in self.program.constants
        return datum.kind in LEAVES and not known and datum.view is None and not datum.mapped

    def _input_number(self, name: str) -> int:
        if name not in self._numbers:
            raise UsageError(f"the model has no input {name!r}")
        return self._numbers[name]

    def _load_parameters(self, values: Iterable[int]) -> None:
        """Fill parameters, state, or constants whose data the program does not hold."""
        for index in values:
            datum = self.program.values[index]
            if datum.spec is not None:
                array = self._parameters(datum.name)
                if array.shape != datum.spec.shape or array.dtype != datum.spec.dtype:
                    raise MissingData(
                        f"parameter {datum.name!r} is {array.dtype}{array.shape}, "
                        f"planned as {datum.spec.dtype}{datum.spec.shape}"
                    )
                if datum.spec.bytes:
                    self.device.from_host(self.arrays[index], array)

    def _doubted(self, index: int, bound: Callable[[], object]) -> Callable[[], object]:
        """A kernel on pieces as large as planned; settles pending index checks before updates."""
        steps = self.program.steps
        if self._doubts is None:
            return bound
        updates = steps[index].stage == "update" != steps[index - 1].stage
        settle = self._settle if updates else None
        return partial(_run_doubted, self.program.grain, self._doubts, index, settle, bound)

    def _settle(self) -> None:
        """Raise the errors of indices found by a device since the last time."""
        found = None if self._doubts is None else self._doubts.settled()
        if found is not None:
            error, step = found
            with blamed(partial(self._label, step), "its kernel"):
                raise error

    def _bound(self) -> list[Callable[[], object]]:
        """The calls of all steps; those of the library alone have their words side by side."""
        steps, calls = self.program.steps, dict[int, Callable[[], object]]()
        waiting, blocks, places = list[int](), list[Block](), list[list[int]]()
        base, index = self.device.address(self.arena) if self.program.is_native else 0, 0
        with blamed(lambda: self._label(index), "its kernel"):
            for index, step in enumerate(steps):
                block = place = None
                if step.is_native and (place := self.arrays.places(index, base)) is not None:
                    block = self.arrays.block(step, self.program.signatures[index])
                if block is None or place is None:
                    calls[index] = self._doubted(index, self._bind(index, step))
                else:
                    waiting.append(index)
                    blocks.append(block)
                    places.append(place)
        calls |= zip(waiting, laid(blocks, places), strict=True)
        return [calls[index] for index in range(len(steps))]

    def _bind(self, index: int, step: Step) -> Callable[[], object]:
        if step.is_native:
            return self._bind_native(index, step)
        domain, op = split_name(step.op)
        found = registry.find(domain, op, step.version)
        if found is None:
            raise UsageError(f"no kernel to run {step.op}")
        if self.program.is_dynamic(step):
            return partial(self.dynamic.run, index, found, self.arrays)
        out = [None if v is None else self.arrays[v] for v in step.outputs]
        on_host = not self.device.computes([*map(self._spec, step.reads), *out, *step.workspace])
        inputs = [
            None if v is None else self._operand(v, on_host or slot in found.host)
            for slot, v in enumerate(step.inputs)
        ]
        if on_host:
            return partial(_on_host, self.device, found, inputs, out, dict(step.attributes))
        if found.allocating:
            return partial(_adapted, self.device.xp, found, inputs, out, dict(step.attributes))
        buffers = found.buffers(out, self.arrays.workspace(index))
        fixed = partial(found.function, self.device.xp, **buffers, **step.attributes)
        if any(callable(i) for i in inputs):
            return partial(_fetch_then_call, fixed, inputs)
        return partial(fixed, *inputs)

    def _bind_native(self, index: int, step: Step) -> Callable[[], object]:
        found = native.find(*split_name(step.op), step.version)
        assert found is not None  # noqa: S101 - see `program/native.py`
        inputs, out = (
            [None if v is None else self.arrays[v] for v in values]
            for values in (step.inputs, step.outputs)
        )
        work = self.arrays.workspace(index)
        return found.bind(*inputs, out=out, work=work, **step.attributes)

    def _spec(self, value: int) -> Spec | None:
        return self.program.values[value].spec

    def _operand(self, value: int, on_host: bool) -> Any:  # noqa: FBT001
        """An array, or for a host input computed on a device a function that fetches it."""
        if not on_host:
            return self.arrays[value]
        if value in self.program.constants:
            return self.program.constants[value]
        if self.device.xp is np:
            return self.arrays[value]
        return partial(self.device.to_host, self.arrays[value])


def _run_doubted(
    times: int, doubts: Doubts, index: int, settle: Callable[[], None] | None,
    bound: Callable[[], object],
) -> None:  # fmt: skip
    if settle is not None:
        settle()
    with grain(times), doubts.of(index):
        bound()


def _adapted(
    xp: Any, found: Kernel, inputs: list[Any], out: list[Any], attributes: Mapping[str, Any]
) -> None:
    """Call a kernel in the simple style and copy its results."""
    inputs = [i() if callable(i) else i for i in inputs]
    made = found.function(xp, *inputs, **attributes)
    for target, result in zip(out, made if isinstance(made, tuple) else (made,), strict=False):
        if target is not None:
            xp.copyto(target, xp.asarray(result, target.dtype))


def _on_host(
    device: Device, found: Kernel, inputs: list[Any], out: list[Any], attributes: Mapping[str, Any]
) -> None:
    """Call a kernel on copies of its inputs on the host, and copy its results to the device."""
    given = [i() if callable(i) else i for i in inputs]
    specs = [None if target is None else spec_of(target) for target in out]
    for target, result in zip(out, call(np, found, given, specs, attributes), strict=False):
        if target is not None:
            device.from_host(target, result)


def _fetch_then_call(function: Callable[..., None], inputs: list[Any]) -> None:
    function(*(i() if callable(i) else i for i in inputs))
